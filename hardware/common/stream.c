// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include "stream.h"

size_t stream_resume(struct stream *stream, char *buffer)
{
	size_t size = stream->size;

	if (size)
		memcpy(buffer, stream->rest, size);
	stream_free(stream);
	return size;
}

bool stream_cut(const char *text, size_t size, stream_message *message, void *context, size_t *used)
{
	struct frame frame;

	*used = 0;
	while (*used < size) {
		enum frame_state state = frame_cut(text + *used, size - *used, &frame);

		*used += frame.skip;
		if (state != FRAME_WHOLE)
			return state == FRAME_PARTIAL;
		message(context, text + *used, &frame);
		*used += frame.length;
	}
	return true;
}

bool stream_keep(struct stream *stream, const char *text, size_t size)
{
	if (!size)
		return true;
	stream->rest = malloc(size);
	if (!stream->rest)
		return false;
	memcpy(stream->rest, text, size);
	stream->size = size;
	return true;
}

void stream_free(struct stream *stream)
{
	free(stream->rest);
	*stream = (struct stream){ 0 };
}
