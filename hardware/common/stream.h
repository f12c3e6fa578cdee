/* SPDX-License-Identifier: MIT */
/*
 * Functions that find SIP messages in a byte stream that arrives in pieces (RFC 3261 18.3).
 *
 * Before each read, stream_resume() copies the kept bytes to the front of a buffer, and the read appends new bytes.
 * stream_cut() calls a function for each whole message. stream_keep() keeps the remaining bytes for the next read.
 */
#ifndef SIPSCHED_STREAM_H
#define SIPSCHED_STREAM_H
#include "frame.h"

#define STREAM_READ  (1 << 16) /* largest number of bytes that one read returns */
#define STREAM_BYTES (FRAME_MAX + STREAM_READ)

/* The bytes of an incomplete message, whose other bytes have not arrived yet. */
struct stream {
	char *rest;
	size_t size;
};

typedef void stream_message(void *context, const char *text, const struct frame *frame);

/* Copy the kept bytes to the front of a buffer of STREAM_BYTES, and return the number of kept bytes. */
size_t stream_resume(struct stream *stream, char *buffer);
/*
 * Call `message` for each whole message, and set `used` to the number of bytes before the first incomplete message. Return
 * false if a message is malformed, because the rest of the stream cannot be cut into messages.
 */
bool stream_cut(const char *text, size_t size, stream_message *message, void *context, size_t *used);
/* Keep the bytes of an incomplete message. Return false if memory runs out. */
bool stream_keep(struct stream *stream, const char *text, size_t size);
void stream_free(struct stream *stream);
#endif
