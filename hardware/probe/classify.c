// SPDX-License-Identifier: MIT
#include "../common/span.h"
#include "../common/trace.h"
#include "classify.h"

struct cseq {
	uint32_t number;
	struct span method;
	bool found;
};

/* Return whether the text starts with SIP-Version, which ignores case (RFC 3261 7.1). */
static bool is_response(struct span text)
{
	return span_size(text) >= 8 && strncasecmp(text.at, "SIP/2.0 ", 8) == 0;
}

/* Return the three digits after the version, or an empty span if they are missing. */
static struct span status_code(struct span text)
{
	struct span code = { text.at, text.at };

	if (span_size(text) >= 12 && !is_digit(text.at[11])) {
		code.at = text.at + 8;
		code.end = text.at + 11;
	}
	return code;
}

/* Return the word before the first blank, or an empty span if the text has no blank. */
static struct span first_word(struct span text)
{
	struct span word = { text.at, text.at };

	while (word.end < text.end && !is_blank(*word.end) && *word.end != '\r' && *word.end != '\n')
		word.end++;
	if (word.end == text.end)
		word.end = word.at;
	return word;
}

/* Parse the value of a CSeq header, such as `4711 INVITE`. */
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
	cseq.method = span_trim(value);
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

	/* Skip the start line. */
	if (span_next_line(&rest, &line) != LINE_HEADER)
		rest.at = rest.end;
	while ((!result.call_id_hash || !cseq.found) && span_next_line(&rest, &line) == LINE_HEADER) {
		const char *colon = memchr(line.at, ':', span_size(line));
		struct span name = { line.at, colon ? colon : line.at };
		struct span value = { colon ? colon + 1 : line.end, line.end };

		name = span_trim(name);
		value = span_trim(value);
		/* use the first header if a header is repeated; "i" is the compact form of Call-ID (RFC 3261 7.3.3) */
		if (!result.call_id_hash && span_size(value) &&
		    (span_is_name(name, "Call-ID") || span_is_name(name, "i")))
			result.call_id_hash = span_hash(value);
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
