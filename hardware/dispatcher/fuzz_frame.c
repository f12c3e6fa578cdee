// SPDX-License-Identifier: MIT
/*
 * Fuzz target: hostile streams against the cutting of messages. Read at once and read in pieces a stream has to give the same
 * messages, of the same calls; every text lies on the heap at its exact size, so that a byte read past it is found.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

/* How many messages, and a hash of where each began, how long it was and whose. */
struct cut {
	uint64_t messages;
	uint64_t hash;
};

static struct cut read_in_pieces(const uint8_t *data, size_t size, size_t piece)
{
	size_t begin = 0, end = 0;
	struct cut cut = { 0 };

	while (end < size) {
		enum frame_state state;
		struct frame frame;
		char *text;

		end = size - end < piece ? size : end + piece;
		do {
			text = malloc(end > begin ? end - begin : 1);
			must(text != NULL);
			memcpy(text, data + begin, end - begin);
			state = frame_cut(text, end - begin, &frame);
			free(text);
			must(frame.skip <= end - begin && frame.length <= FRAME_MAX);
			if (state == FRAME_BROKEN)
				return cut;
			if (state == FRAME_WHOLE) {
				must(frame.length > 0 && frame.skip + frame.length <= end - begin);
				cut.messages++;
				cut.hash = (cut.hash + begin + frame.skip) * 31 + frame.length;
				cut.hash = cut.hash * 31 + (frame.has_call_id ? frame.hash : 1);
			}
			begin += frame.skip + frame.length;
		} while (state == FRAME_WHOLE && begin < end);
	}
	return cut;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cut whole, pieces;

	if (!size)
		return 0;
	whole = read_in_pieces(data, size, size);
	pieces = read_in_pieces(data, size, 1 + data[size - 1] % 64);
	must(whole.messages == pieces.messages && whole.hash == pieces.hash);
	return 0;
}
