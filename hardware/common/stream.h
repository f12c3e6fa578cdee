/* SPDX-License-Identifier: MIT */
/*
 * SIP messages in a byte stream (RFC 3261 18.3), which arrives in pieces.
 *
 * Per read: stream_resume() copies the kept bytes to the front of a buffer, and the read appends to them. stream_cut() passes on
 * the whole messages, and stream_keep() keeps the remaining bytes for the next read.
 */
#ifndef SIPSCHED_STREAM_H
#define SIPSCHED_STREAM_H
#include "frame.h"

#define STREAM_READ  (1 << 16) /* the largest number of bytes per read */
#define STREAM_BYTES (FRAME_MAX + STREAM_READ)

/* The first bytes of a message whose other bytes have not arrived. */
struct stream {
	char *rest;
	size_t size;
};

typedef void stream_message(void *context, const char *text, const struct frame *frame);

/* Move the kept bytes to the front of a buffer of STREAM_BYTES, and return their number. */
size_t stream_resume(struct stream *stream, char *buffer);
/*
 * Call `message` for each whole message. `used` gets the number of bytes of these messages. Return false if the stream
 * cannot be cut into messages.
 */
bool stream_cut(const char *text, size_t size, stream_message *message, void *context, size_t *used);
/* Return false if memory runs out. */
bool stream_keep(struct stream *stream, const char *text, size_t size);
void stream_free(struct stream *stream);
#endif
