/* SPDX-License-Identifier: MIT */
/*
 * A message at the front of a stream, as far as a dispatcher needs it: where it ends, and whose call it is (RFC 3261 18.3, 20.8).
 *
 * The stream may come from anyone. Compact names, blanks before the colon and bare LF are understood; folded lines are read as
 * lines of no name. A message has to have a Content-Length, or nobody could say where it ends.
 */
#ifndef SIPSCHED_FRAME_H
#define SIPSCHED_FRAME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX 65535 /* bytes of a message */

enum frame_state {
	FRAME_PARTIAL, /* more of the stream is needed */
	FRAME_WHOLE,
	FRAME_BROKEN, /* no message can be cut from this stream any more */
};

struct frame {
	size_t skip;   /* bytes of empty lines before it (7.5) */
	size_t length; /* its own bytes, with the body; 0 unless it is whole */
	bool has_call_id;
	uint32_t hash; /* of the Call-ID: that of shard.bpf.c */
};

enum frame_state frame_cut(const char *text, size_t size, struct frame *frame);
#endif
