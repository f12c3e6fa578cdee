// SPDX-License-Identifier: MIT
#include "../common/span.h"
#include "../common/trace.h"
#include "classify.h"

struct cseq {
	uint32_t number;
	struct span method;
	bool found;
};

/* Return whether the text starts with `SIP/2.0 ` in upper or lower case, as a response does (RFC 3261 7.1). */
static bool is_response(struct span text)
{
	return span_size(text) >= 8 && strncasecmp(text.at, "SIP/2.0 ", 8) == 0;
}

/* Return the three characters after `SIP/2.0 `, or an empty span if the text ends there or a fourth digit follows. */
static struct span status_code(struct span text)
{
	struct span code = { text.at, text.at };

	if (span_size(text) >= 12 && !is_digit(text.at[11])) {
		code.at = text.at + 8;
		code.end = text.at + 11;
	}
	return code;
}

/* Return the word before the first blank or line end, or an empty span if the text has neither. */
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

static uint64_t rotate(uint64_t word, int by)
{
	return word << by | word >> (64 - by);
}

static void mix(uint64_t *v)
{
	v[0] += v[1];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[0] = rotate(v[0], 32);
	v[2] += v[3];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[2] = rotate(v[2], 32);
}

static void absorb(uint64_t *v, uint64_t word)
{
	v[3] ^= word;
	mix(v);
	mix(v);
	v[0] ^= word;
}

uint64_t sip_keyed_hash(const struct sip_key *key, const void *bytes, size_t size)
{
	uint64_t v[4] = { key->half[0] ^ 0x736f6d6570736575ULL, key->half[1] ^ 0x646f72616e646f6dULL,
			  key->half[0] ^ 0x6c7967656e657261ULL, key->half[1] ^ 0x7465646279746573ULL };
	const unsigned char *at = bytes;
	uint64_t last = (uint64_t)size << 56;
	size_t left = size;

	for (; left >= 8; left -= 8, at += 8) {
		uint64_t word;

		memcpy(&word, at, sizeof(word)); /* ASSUME the CPU is little-endian, as trace.h does */
		absorb(v, word);
	}
	while (left--)
		last |= (uint64_t)at[left] << (8 * left);
	absorb(v, last);
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
static const char *const methods[] = { TRACE_METHODS };
static const char *const statuses[] = { TRACE_STATUSES };
_Static_assert(COUNT_OF(methods) + COUNT_OF(statuses) < TRACE_NOT_SIP, "five bits do not hold all names");

/* Return 1 + the index of a request's method in TRACE_METHODS. The last entry stands for all other methods. */
static size_t method_number(struct span method)
{
	size_t i = 0;

	while (i < COUNT_OF(methods) - 1 && !span_is(method, methods[i]))
		i++;
	return i + 1;
}

/*
 * Return the number of a response's status code, which continues the numbers of the methods. If TRACE_STATUSES lacks the
 * code, return the number of its class, such as 4xx.
 */
static size_t status_number(struct span code)
{
	for (size_t i = 0; i < COUNT_OF(statuses); i++) {
		const char *name = statuses[i];

		if (name[0] == code.at[0] && (name[1] == 'x' || !memcmp(name, code.at, 3)))
			return COUNT_OF(methods) + i + 1;
	}
	return TRACE_NOT_SIP;
}

/* Return whether the text starts with a request: its first line ends with `SIP/2.0`. */
static bool is_request(struct span text)
{
	struct span line;
	const char version[] = "SIP/2.0";
	size_t size = sizeof(version) - 1;

	return span_next_line(&text, &line) == LINE_HEADER && span_size(line) > size &&
	       !strncasecmp(line.end - size, version, size);
}

/* Return the number of a message's method or status code in the lists of trace.h, or TRACE_NOT_SIP. */
static size_t detail_of(struct span text)
{
	if (is_response(text)) {
		struct span code = status_code(text);

		return span_size(code) && is_digit(code.at[0]) && is_digit(code.at[1]) && is_digit(code.at[2])
			       ? status_number(code)
			       : TRACE_NOT_SIP;
	}
	return is_request(text) ? method_number(first_word(text)) : TRACE_NOT_SIP;
}

/* Return the hash of a Call-ID. Replace a hash of 0 by 1, because 0 means that a message has no Call-ID. */
static uint64_t call_hash(struct span value, const struct sip_key *key)
{
	uint64_t hash = key ? sip_keyed_hash(key, value.at, span_size(value)) : span_hash(value);

	return hash ? hash : 1;
}

struct sip_class sip_classify(const char *text, size_t size, const struct sip_key *key)
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
		/* If a header is repeated, use the first header. `i` is the short name of Call-ID (RFC 3261 7.3.3). */
		if (!result.call_id_hash && span_size(value) &&
		    (span_is_name(name, "Call-ID") || span_is_name(name, "i")))
			result.call_id_hash = call_hash(value, key);
		else if (!cseq.found && span_is_name(name, "CSeq"))
			cseq = parse_cseq(value);
	}
	if (cseq.found)
		result.cseq =
			key ? (uint32_t)sip_keyed_hash(key, &cseq.number, sizeof(cseq.number)) : cseq.number;
	result.complete = result.call_id_hash && cseq.found;
	result.kind = is_response(start) ? response_kind(status_code(start), &cseq)
					 : request_kind(first_word(start));
	if (key && result.kind == TRACE_KIND_OTHER)
		result.kind = (uint8_t)(detail_of(start) << TRACE_KIND_BITS);
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
