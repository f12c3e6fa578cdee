/* SPDX-License-Identifier: MIT */
/* Pieces of SIP text that are read in place (RFC 3261, section 7). No function reads a byte outside its span. */
#ifndef SIPSCHED_SPAN_H
#define SIPSCHED_SPAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* The characters from `at` up to, but without, `end`. A span is not zero-terminated. */
struct span {
	const char *at;
	const char *end;
};

enum span_line {
	LINE_HEADER,
	LINE_EMPTY,      /* the empty line after the headers */
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

/* Compare without regard to case, as RFC 3261 7.3.1 asks for header names. */
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

/* Return the 64-bit FNV-1a hash. Call records and traces identify a Call-ID by this hash. */
static inline uint64_t span_hash(struct span s)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (; s.at < s.end; s.at++)
		hash = (hash ^ (unsigned char)*s.at) * 0x100000001b3ULL;
	return hash;
}

/*
 * Cut the next header line, with the lines that are folded into it (RFC 3261 7.3.1), off the front of `text`.
 * `line` then has no line end. The first byte of the next line decides whether it is folded, so a line is incomplete
 * where the text ends with its newline.
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
