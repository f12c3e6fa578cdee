// SPDX-License-Identifier: MIT
#include "frame.h"
#include "span.h"

#define FNV_BASIS 2166136261U
#define FNV_PRIME 16777619U
#define NO_LENGTH SIZE_MAX

/* If the line is a header with the name `name`, reduce `line` to the header's value and return true. */
static bool take_name(struct span *line, const char *name, size_t size)
{
	const char *at = line->at + size;

	if (span_size(*line) <= size || strncasecmp(line->at, name, size) != 0)
		return false;
	while (at < line->end && is_blank(*at))
		at++;
	if (at == line->end || *at != ':')
		return false;
	line->at = at + 1;
	return true;
}

#define is_header(line, name, compact) \
	(take_name(line, name, sizeof(name) - 1) || take_name(line, compact, sizeof(compact) - 1))

/* Parse the value of a Content-Length header. Return false if the value is not a number or exceeds FRAME_MAX. */
static bool read_length(struct span value, size_t *length)
{
	const char *first;

	value = span_trim(value);
	*length = 0;
	for (first = value.at; value.at < value.end; value.at++) {
		if (!is_digit(*value.at) || *length > FRAME_MAX)
			return false;
		*length = *length * 10 + (size_t)(*value.at - '0');
	}
	return value.at > first && *length <= FRAME_MAX;
}

static uint32_t hash_value(struct span value)
{
	uint32_t hash = FNV_BASIS;

	for (; value.at < value.end; value.at++)
		if (!is_blank(*value.at))
			hash = (hash ^ (unsigned char)*value.at) * FNV_PRIME;
	return hash ^ hash >> 16;
}

/* Parse one header line. Return false for an invalid or second Content-Length, which makes the stream unreadable. */
static bool read_header(struct span line, struct frame *frame, size_t *body)
{
	char first = (char)(*line.at | 0x20);

	if (first != 'c' && first != 'i' && first != 'l')
		return true;
	if (is_header(&line, "Content-Length", "l"))
		return *body == NO_LENGTH && read_length(line, body);
	if (!frame->has_call_id && is_header(&line, "Call-ID", "i")) {
		frame->has_call_id = true;
		frame->hash = hash_value(line);
	}
	return true;
}

enum frame_state frame_cut(const char *text, size_t size, struct frame *frame)
{
	const char *at = text, *end = text + size, *start;
	size_t body = NO_LENGTH;

	*frame = (struct frame){ 0 };
	while (at < end && (*at == '\r' || *at == '\n'))
		at++;
	start = at;
	frame->skip = (size_t)(start - text);
	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		struct span line = { at, newline };

		if (!newline)
			break;
		at = newline + 1;
		if (line.end > line.at && line.end[-1] == '\r')
			line.end--;
		if (line.end > line.at) {
			if (!read_header(line, frame, &body))
				return FRAME_BROKEN;
			continue;
		}
		if (body == NO_LENGTH || (size_t)(at - start) + body > FRAME_MAX)
			return FRAME_BROKEN;
		if ((size_t)(end - at) < body)
			return FRAME_PARTIAL;
		frame->length = (size_t)(at - start) + body;
		return FRAME_WHOLE;
	}
	return (size_t)(end - start) > FRAME_MAX ? FRAME_BROKEN : FRAME_PARTIAL;
}
