/* SPDX-License-Identifier: MIT */
/*
 * The first message of a byte stream: its length and its Call-ID (RFC 3261 18.3, 20.8).
 *
 * The stream is untrusted. Compact names, blanks before the colon and bare LF are accepted. A folded line counts as a line without
 * a name. A message needs exactly one Content-Length. Without one, its end is unknown. With two, it is malformed
 * (RFC 3261 7.3.1), because readers could choose different ones.
 */
#ifndef SIPSCHED_FRAME_H
#define SIPSCHED_FRAME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX 65535 /* bytes of a message */

enum frame_state {
	FRAME_PARTIAL, /* more bytes are needed */
	FRAME_WHOLE,
	FRAME_BROKEN, /* the rest of the stream cannot be cut into messages */
};

struct frame {
	size_t skip;   /* bytes of empty lines before the message (7.5) */
	size_t length; /* bytes of the message with its body; 0 unless it is whole */
	bool has_call_id;
	uint32_t hash; /* of the Call-ID, as in ../dispatcher/shard.bpf.c */
};

enum frame_state frame_cut(const char *text, size_t size, struct frame *frame);
#endif
