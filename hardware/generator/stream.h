/* SPDX-License-Identifier: MIT */
/*
 * SIP messages in a stream (RFC 3261 18.3): what is read piece by piece, cut apart by Content-Length.
 *
 * A read goes behind what stream_resume() put into the buffer; stream_cut() hands the whole messages of the two on, and
 * stream_keep() keeps the start of the next one for the next read.
 */
#ifndef SIPSCHED_STREAM_H
#define SIPSCHED_STREAM_H
#include <stdbool.h>
#include <stddef.h>
#include "sip.h"

#define STREAM_READ  (1 << 16) /* bytes read at once, at most */
#define STREAM_BYTES (SIP_MESSAGE_MAX + STREAM_READ)

/* The start of a message of which more is to come. */
struct stream {
	char *rest;
	size_t size;
};

typedef void stream_message(void *context, const char *text, size_t size);

/* Move what is kept to the front of a buffer of STREAM_BYTES; gives its size. */
size_t stream_resume(struct stream *stream, char *buffer);
/* Hand the whole messages on. False: the stream cannot be followed any more. `used` gets the bytes to leave behind. */
bool stream_cut(const char *text, size_t size, stream_message *message, void *context, size_t *used);
/* False: not enough memory. */
bool stream_keep(struct stream *stream, const char *text, size_t size);
void stream_free(struct stream *stream);
#endif
