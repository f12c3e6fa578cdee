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
	size_t skip, length;

	*used = 0;
	while (*used < size) {
		enum sip_frame frame = sip_cut_frame(text + *used, size - *used, &skip, &length);

		if (frame == SIP_FRAME_BROKEN)
			return false;
		*used += skip;
		if (frame == SIP_FRAME_PARTIAL)
			return true;
		message(context, text + *used, length);
		*used += length;
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
