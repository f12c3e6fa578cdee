/* SPDX-License-Identifier: MIT */
/*
 * Functions that find the length and the Call-ID of the first message in a byte stream (RFC 3261 18.3, 20.8).
 *
 * The stream may be malformed. The parser accepts compact header names, blanks before the colon and bare LF. The parser
 * treats a continuation line as a line without a name. A message must have exactly one Content-Length header. Without
 * this header, the end of the message is unknown. A message with two Content-Length headers is malformed (RFC 3261
 * 7.3.1), because two readers could choose different lengths.
 */
#ifndef SIPSCHED_FRAME_H
#define SIPSCHED_FRAME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX 65535 /* largest message in bytes */

enum frame_state {
	FRAME_PARTIAL, /* the message is incomplete, so the caller must read more bytes */
	FRAME_WHOLE,
	FRAME_BROKEN, /* the end of the message is unknown, so the rest of the stream is lost */
};

struct frame {
	size_t skip;   /* number of bytes of empty lines before the message (RFC 3261 7.5) */
	size_t length; /* number of bytes of headers and body; 0 unless the message is whole */
	bool has_call_id;
	uint32_t hash; /* hash of the Call-ID, equal to the hash in ../dispatcher/shard.bpf.c */
};

enum frame_state frame_cut(const char *text, size_t size, struct frame *frame);
#endif
