// SPDX-License-Identifier: MIT
#include <string.h>
#include <strings.h>
#include "classify.h"
#include "trace.h"

/* A piece of text: never zero-terminated, never read at or past end. */
struct span {
	const char *at;
	const char *end;
};

struct cseq {
	uint32_t number;
	struct span method;
	bool found;
};

static size_t span_size(struct span s)
{
	return (size_t)(s.end - s.at);
}

static bool span_is(struct span s, const char *word)
{
	return span_size(s) == strlen(word) && memcmp(s.at, word, span_size(s)) == 0;
}

/* Header names are case-insensitive (RFC 3261 7.3.1). */
static bool span_is_name(struct span s, const char *name)
{
	return span_size(s) == strlen(name) && strncasecmp(s.at, name, span_size(s)) == 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static struct span trim(struct span s)
{
	while (s.at < s.end && (is_blank(*s.at) || *s.at == '\r' || *s.at == '\n'))
		s.at++;
	while (s.at < s.end && (is_blank(s.end[-1]) || s.end[-1] == '\r' || s.end[-1] == '\n'))
		s.end--;
	return s;
}

/*
 * Cut the next header line, with the lines folded into it (RFC 3261 7.3.1), off the front of the text.
 * False at the end of the headers or when the line's end lies outside the text.
 */
static bool next_line(struct span *text, struct span *line)
{
	line->at = text->at;
	while (text->at < text->end) {
		const char *newline = memchr(text->at, '\n', span_size(*text));

		if (!newline)
			return false;
		line->end = newline;
		text->at = newline + 1;
		if (span_size(trim(*line)) == 0)
			return false;
		/* Whether the next line continues this one shows in its first byte: without it, not known. */
		if (text->at == text->end)
			return false;
		if (!is_blank(*text->at))
			return true;
	}
	return false;
}

/* SIP-Version is case-insensitive (RFC 3261 7.1). */
static bool is_response(struct span text)
{
	return span_size(text) >= 8 && strncasecmp(text.at, "SIP/2.0 ", 8) == 0;
}

/* The three digits after the version; empty if something else stands there. */
static struct span status_code(struct span text)
{
	struct span code = { text.at, text.at };

	if (span_size(text) >= 12 && !is_digit(text.at[11])) {
		code.at = text.at + 8;
		code.end = text.at + 11;
	}
	return code;
}

/* The word before the first blank; empty if there is no blank. */
static struct span first_word(struct span text)
{
	struct span word = { text.at, text.at };

	while (word.end < text.end && !is_blank(*word.end) && *word.end != '\r' && *word.end != '\n')
		word.end++;
	if (word.end == text.end)
		word.end = word.at;
	return word;
}

static uint64_t fnv1a(struct span s)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (; s.at < s.end; s.at++) {
		hash ^= (unsigned char)*s.at;
		hash *= 0x100000001b3ULL;
	}
	return hash;
}

/* CSeq: 4711 INVITE */
static struct cseq parse_cseq(struct span value)
{
	struct cseq cseq = { 0 };
	uint64_t number = 0;
	const char *digits = value.at;

	while (value.at < value.end && is_digit(*value.at)) {
		if (number <= UINT32_MAX)
			number = number * 10 + (uint64_t)(*value.at - '0');
		value.at++;
	}
	cseq.method = trim(value);
	cseq.number = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
	cseq.found = value.at > digits && span_size(cseq.method) > 0;
	return cseq;
}

static uint8_t request_kind(struct span method)
{
	if (span_is(method, "INVITE"))
		return TRACE_KIND_INVITE;
	if (span_is(method, "ACK"))
		return TRACE_KIND_ACK;
	if (span_is(method, "BYE"))
		return TRACE_KIND_BYE;
	return TRACE_KIND_OTHER;
}

static uint8_t response_kind(struct span code, const struct cseq *cseq)
{
	if (span_is(code, "180"))
		return TRACE_KIND_180;
	if (!span_is(code, "200") || !cseq->found)
		return TRACE_KIND_OTHER;
	if (span_is(cseq->method, "INVITE"))
		return TRACE_KIND_200_INVITE;
	if (span_is(cseq->method, "BYE"))
		return TRACE_KIND_200_BYE;
	return TRACE_KIND_OTHER;
}

struct sip_class sip_classify(const char *text, size_t size)
{
	struct span rest = { text, text + size };
	struct span start = rest;
	struct span line;
	struct cseq cseq = { 0 };
	struct sip_class result = { 0 };

	if (!next_line(&rest, &line)) /* the start line */
		rest.at = rest.end;
	while ((!result.call_id_hash || !cseq.found) && next_line(&rest, &line)) {
		const char *colon = memchr(line.at, ':', span_size(line));
		struct span name = { line.at, colon ? colon : line.at };
		struct span value = { colon ? colon + 1 : line.end, line.end };

		name = trim(name);
		value = trim(value);
		/* The first of repeated headers counts. "i" is Call-ID's compact form (RFC 3261 7.3.3). */
		if (!result.call_id_hash && span_size(value) &&
		    (span_is_name(name, "Call-ID") || span_is_name(name, "i")))
			result.call_id_hash = fnv1a(value);
		else if (!cseq.found && span_is_name(name, "CSeq"))
			cseq = parse_cseq(value);
	}
	if (cseq.found)
		result.cseq = cseq.number;
	result.complete = result.call_id_hash && cseq.found;
	result.kind = is_response(start) ? response_kind(status_code(start), &cseq)
					 : request_kind(first_word(start));
	return result;
}

bool sip_same_start(const char *a, size_t a_size, const char *b, size_t b_size)
{
	struct span a_text = { a, a + a_size };
	struct span b_text = { b, b + b_size };
	bool response = is_response(a_text);
	struct span a_word = response ? status_code(a_text) : first_word(a_text);
	struct span b_word = response ? status_code(b_text) : first_word(b_text);

	if (response != is_response(b_text) || span_size(a_word) == 0)
		return false;
	return span_size(a_word) == span_size(b_word) && memcmp(a_word.at, b_word.at, span_size(a_word)) == 0;
}
