// SPDX-License-Identifier: MIT
/*
 * A fuzz target for malformed byte streams. The parser must find the same messages, whether it reads a stream in one piece
 * or in several pieces. The fuzz target copies each piece to a heap block of the same size, so the sanitizer reports a
 * read past the end of the piece.
 */
#include <stdlib.h>
#include "span.h"
#include "stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

/* The number of messages that the parser found, and one hash over the sizes, texts and Call-IDs of all messages. */
struct result {
	uint64_t messages;
	uint64_t hash;
};

static void on_message(void *context, const char *text, const struct frame *frame)
{
	struct result *result = context;
	const struct span span = { text, text + frame->length };

	must(frame->length > 0 && frame->length <= FRAME_MAX);
	result->messages++;
	result->hash = result->hash * 31 + (span_hash(span) ^ frame->length);
	result->hash = result->hash * 31 + (frame->has_call_id ? frame->hash : 1);
}

/* Parse a stream in pieces of `least` to `least` + 3 bytes, until the stream ends or a message is malformed. */
static struct result read_in_pieces(const uint8_t *bytes, size_t size, size_t least)
{
	struct stream stream = { 0 };
	struct result result = { 0 };

	for (size_t done = 0, piece = least; done < size; piece = piece < least + 3 ? piece + 1 : least) {
		size_t now = piece < size - done ? piece : size - done, kept = stream.size, used;
		char *text = malloc(kept + now);
		bool followed;

		must(kept <= FRAME_MAX && text && stream_resume(&stream, text) == kept);
		memcpy(text + kept, bytes + done, now);
		followed = stream_cut(text, kept + now, on_message, &result, &used);
		must(used <= kept + now);
		followed = followed && stream_keep(&stream, text + used, kept + now - used);
		free(text);
		if (!followed)
			break;
		done += now;
	}
	stream_free(&stream);
	return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct result whole, pieces;

	if (!size)
		return 0;
	whole = read_in_pieces(data, size, size);
	pieces = read_in_pieces(data, size, 1 + data[size - 1] % 64);
	must(whole.messages == pieces.messages && whole.hash == pieces.hash);
	return 0;
}
