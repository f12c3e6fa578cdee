/* SPDX-License-Identifier: MIT */
/*
 * A span is a part of a SIP message (RFC 3261, section 7), which functions read without a copy. No function reads a byte
 * outside its span.
 */
#ifndef SIPSCHED_SPAN_H
#define SIPSCHED_SPAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* The characters from `at` up to `end`, excluding `*end`. A span is not zero-terminated. */
struct span {
	const char *at;
	const char *end;
};

enum span_line {
	LINE_HEADER,
	LINE_EMPTY,      /* the empty line that ends the headers */
	LINE_INCOMPLETE, /* the text ends before the end of the line is certain */
};

static inline size_t span_size(struct span s)
{
	return (size_t)(s.end - s.at);
}

static inline bool span_is(struct span s, const char *word)
{
	return span_size(s) == strlen(word) && memcmp(s.at, word, span_size(s)) == 0;
}

/* Return whether a header has the name `name`. Ignore upper and lower case, as RFC 3261 7.3.1 requires. */
static inline bool span_is_name(struct span s, const char *name)
{
	return span_size(s) == strlen(name) && strncasecmp(s.at, name, span_size(s)) == 0;
}

static inline bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static inline bool is_white(char c)
{
	return is_blank(c) || c == '\r' || c == '\n';
}

static inline bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline struct span span_trim(struct span s)
{
	while (s.at < s.end && is_white(*s.at))
		s.at++;
	while (s.at < s.end && is_white(s.end[-1]))
		s.end--;
	return s;
}

/* Return the 64-bit FNV-1a hash of a span. Call records and traces contain this hash of the Call-ID. */
static inline uint64_t span_hash(struct span s)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (; s.at < s.end; s.at++)
		hash = (hash ^ (unsigned char)*s.at) * 0x100000001b3ULL;
	return hash;
}

/*
 * Move the next header line, with its continuation lines (RFC 3261 7.3.1), from the front of `text` to `line`, without the
 * line end. The first byte after a newline decides whether the next line is a continuation. A line is therefore incomplete
 * if the text ends with the line's newline.
 */
static inline enum span_line span_next_line(struct span *text, struct span *line)
{
	line->at = text->at;
	while (text->at < text->end) {
		const char *newline = memchr(text->at, '\n', span_size(*text));

		if (!newline)
			return LINE_INCOMPLETE;
		line->end = newline;
		text->at = newline + 1;
		if (line->end > line->at && line->end[-1] == '\r')
			line->end--;
		if (line->end == line->at)
			return LINE_EMPTY;
		if (text->at == text->end)
			return LINE_INCOMPLETE;
		if (!is_blank(*text->at))
			return LINE_HEADER;
	}
	return LINE_INCOMPLETE;
}
#endif
