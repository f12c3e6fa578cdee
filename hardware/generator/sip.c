// SPDX-License-Identifier: MIT
#include <string.h>
#include <strings.h>
#include "sip.h"

#define NO_LENGTH UINT32_MAX /* there is no Content-Length */

static const struct span EMPTY = { "", "" };

static bool span_is(struct span s, const char *word)
{
	return span_size(s) == strlen(word) && memcmp(s.at, word, span_size(s)) == 0;
}

static bool span_is_name(struct span s, const char *name)
{
	return span_size(s) == strlen(name) && strncasecmp(s.at, name, span_size(s)) == 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_white(char c)
{
	return is_blank(c) || c == '\r' || c == '\n';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static struct span trim(struct span s)
{
	while (s.at < s.end && is_white(*s.at))
		s.at++;
	while (s.at < s.end && is_white(s.end[-1]))
		s.end--;
	return s;
}

uint64_t sip_hash(struct span s)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (; s.at < s.end; s.at++) {
		hash ^= (unsigned char)*s.at;
		hash *= 0x100000001b3ULL;
	}
	return hash;
}

enum line {
	LINE_HEADER,
	LINE_EMPTY, /* the end of the headers */
	LINE_NONE,  /* the text ends before the line does */
};

/* Cut the next line, with the lines folded into it (7.3.1), off the front of the text. */
static enum line next_line(struct span *text, struct span *line)
{
	line->at = text->at;
	while (text->at < text->end) {
		const char *newline = memchr(text->at, '\n', span_size(*text));

		if (!newline)
			return LINE_NONE;
		line->end = newline;
		text->at = newline + 1;
		if (line->end > line->at && line->end[-1] == '\r')
			line->end--;
		if (line->end == line->at)
			return LINE_EMPTY;
		if (text->at == text->end)
			return LINE_NONE;
		if (!is_blank(*text->at))
			return LINE_HEADER;
	}
	return LINE_NONE;
}

/* The end of the quoted string that starts at s.at (25.1); s.end if it does not end. */
static const char *quoted_end(struct span s)
{
	const char *at = s.at + 1;

	for (; at < s.end && *at != '"'; at++)
		if (*at == '\\' && at + 1 < s.end)
			at++;
	return at < s.end ? at + 1 : s.end;
}

bool sip_next_element(struct span *list, struct span *element)
{
	const char *at = list->at;
	bool in_brackets = false;

	if (list->at >= list->end)
		return false;
	while (at < list->end && (in_brackets || *at != ',')) {
		if (*at == '"' && !in_brackets) {
			at = quoted_end((struct span){ at, list->end });
			continue;
		}
		if (*at == '<')
			in_brackets = true;
		else if (*at == '>')
			in_brackets = false;
		at++;
	}
	*element = trim((struct span){ list->at, at });
	list->at = at < list->end ? at + 1 : list->end;
	return true;
}

/* Split `"Name" <uri>;parameters` or `uri;parameters` (20.10). */
static void split_address(struct span value, struct span *uri, struct span *parameters)
{
	const char *at = value.at;

	*uri = EMPTY;
	*parameters = EMPTY;
	while (at < value.end && *at != '<' && *at != ';')
		at = *at == '"' ? quoted_end((struct span){ at, value.end }) : at + 1;
	if (at < value.end && *at == '<') {
		const char *close = memchr(at, '>', (size_t)(value.end - at));

		if (!close)
			return;
		*uri = (struct span){ at + 1, close };
		*parameters = (struct span){ close + 1, value.end };
	} else {
		*uri = trim((struct span){ value.at, at });
		*parameters = (struct span){ at, value.end };
	}
}

/* The value of the parameter called `name` in `;a=b;c=d`; empty if there is none. */
static struct span find_parameter(struct span parameters, const char *name)
{
	while (parameters.at < parameters.end) {
		const char *semicolon = memchr(parameters.at, ';', span_size(parameters));
		struct span one = { parameters.at, semicolon ? semicolon : parameters.end };
		const char *equals = memchr(one.at, '=', span_size(one));

		parameters.at = semicolon ? semicolon + 1 : parameters.end;
		if (equals && span_is_name(trim((struct span){ one.at, equals }), name))
			return trim((struct span){ equals + 1, one.end });
	}
	return EMPTY;
}

/* Digits, then the end or a blank. False if there are none or the number is 2^32 or more. */
static bool take_number(struct span *s, uint32_t *number)
{
	const char *first = s->at;
	uint64_t value = 0;

	while (s->at < s->end && is_digit(*s->at) && value <= UINT32_MAX)
		value = value * 10 + (uint64_t)(*s->at++ - '0');
	*number = (uint32_t)value;
	return s->at > first && value <= UINT32_MAX && (s->at == s->end || is_white(*s->at));
}

static enum sip_method method_of(struct span word)
{
	if (span_is(word, "INVITE"))
		return SIP_METHOD_INVITE;
	if (span_is(word, "ACK"))
		return SIP_METHOD_ACK;
	if (span_is(word, "BYE"))
		return SIP_METHOD_BYE;
	return SIP_METHOD_OTHER;
}

static enum sip_kind kind_of(const struct sip_message *m)
{
	if (m->is_request)
		switch (m->method) {
		case SIP_METHOD_INVITE:
			return SIP_KIND_INVITE;
		case SIP_METHOD_ACK:
			return SIP_KIND_ACK;
		case SIP_METHOD_BYE:
			return SIP_KIND_BYE;
		default:
			return SIP_KIND_OTHER;
		}
	if (m->status >= 300)
		return SIP_KIND_FAILURE;
	if (m->status >= 200 && m->method == SIP_METHOD_INVITE)
		return SIP_KIND_200_INVITE;
	if (m->status >= 200 && m->method == SIP_METHOD_BYE)
		return SIP_KIND_200_BYE;
	if (m->status == 180)
		return SIP_KIND_180;
	return m->status == 100 ? SIP_KIND_100 : SIP_KIND_OTHER;
}

/* `INVITE sip:a@b SIP/2.0` or `SIP/2.0 200 OK` (7.1, 7.2); gives the request's method as a word. */
static bool parse_start(struct span line, struct sip_message *m, struct span *method)
{
	static const char version[] = "SIP/2.0";
	const size_t version_size = sizeof(version) - 1;
	const char *blank;

	*method = EMPTY;
	m->is_request = span_size(line) <= version_size || strncasecmp(line.at, version, version_size) != 0;
	if (!m->is_request) {
		const char *code = line.at + version_size + 1;

		if (span_size(line) < version_size + 4 || code[-1] != ' ' || !is_digit(code[0]) ||
		    !is_digit(code[1]) || !is_digit(code[2]) || (code + 3 < line.end && code[3] != ' '))
			return false;
		m->status = (unsigned)((code[0] - '0') * 100 + (code[1] - '0') * 10 + (code[2] - '0'));
		return m->status >= 100 && m->status < 700;
	}
	m->status = 0;
	blank = memchr(line.at, ' ', span_size(line));
	if (!blank || blank == line.at)
		return false;
	*method = (struct span){ line.at, blank };
	/* something that is the URI, a blank, the version */
	return span_size(line) > span_size(*method) + version_size + 2 &&
	       line.end[-(ptrdiff_t)version_size - 1] == ' ' &&
	       strncasecmp(line.end - version_size, version, version_size) == 0;
}

enum header {
	HEADER_OTHER,
	HEADER_VIA,
	HEADER_FROM,
	HEADER_TO,
	HEADER_CALL_ID,
	HEADER_CSEQ,
	HEADER_CONTACT,
	HEADER_RECORD_ROUTE,
	HEADER_CONTENT_LENGTH,
};

/* Names are case-insensitive and may be compact (7.3.1, 7.3.3). */
static enum header header_of(struct span name)
{
	static const struct {
		const char *name;
		char compact;
		enum header header;
	} known[] = {
		{ "Via", 'v', HEADER_VIA },
		{ "From", 'f', HEADER_FROM },
		{ "To", 't', HEADER_TO },
		{ "Call-ID", 'i', HEADER_CALL_ID },
		{ "CSeq", 0, HEADER_CSEQ },
		{ "Contact", 'm', HEADER_CONTACT },
		{ "Record-Route", 0, HEADER_RECORD_ROUTE },
		{ "Content-Length", 'l', HEADER_CONTENT_LENGTH },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (span_size(name) == 1 && (*name.at | 0x20) == known[i].compact)
			return known[i].header;
		if (span_is_name(name, known[i].name))
			return known[i].header;
	}
	return HEADER_OTHER;
}

/* `name: value`; false if there is no colon. */
static bool split_header(struct span line, enum header *header, struct span *value)
{
	const char *colon = memchr(line.at, ':', span_size(line));

	if (!colon)
		return false;
	*header = header_of(trim((struct span){ line.at, colon }));
	*value = trim((struct span){ colon + 1, line.end });
	return true;
}

static bool add_line(struct span *lines, unsigned *count, struct span value)
{
	if (*count == SIP_LINES_MAX)
		return false;
	lines[(*count)++] = value;
	return true;
}

static bool parse_contact(struct span value, struct sip_message *m)
{
	struct span parameters, element;

	if (span_size(m->contact) || !sip_next_element(&value, &element))
		return true;
	split_address(element, &m->contact, &parameters);
	/* it becomes a Request-URI, where nothing may be folded */
	for (const char *at = m->contact.at; at < m->contact.end; at++)
		if (is_white(*at))
			return false;
	return true;
}

static bool parse_header(enum header header, struct span value, struct sip_message *m, uint32_t *length)
{
	struct span uri, parameters;

	switch (header) {
	case HEADER_VIA:
		return add_line(m->via, &m->n_via, value);
	case HEADER_RECORD_ROUTE:
		return add_line(m->record_route, &m->n_record_route, value);
	case HEADER_FROM:
		m->from = value;
		split_address(value, &uri, &parameters);
		m->from_tag = find_parameter(parameters, "tag");
		return true;
	case HEADER_TO:
		m->to = value;
		split_address(value, &uri, &parameters);
		m->to_tag = find_parameter(parameters, "tag");
		return true;
	case HEADER_CALL_ID:
		m->call_id = value;
		return true;
	case HEADER_CSEQ:
		m->cseq = value;
		return true;
	case HEADER_CONTACT:
		return parse_contact(value, m);
	case HEADER_CONTENT_LENGTH:
		return take_number(&value, length) && *length <= SIP_MESSAGE_MAX && value.at == value.end;
	default:
		return true;
	}
}

/* What no message lacks, and what follows from it. */
static bool complete(struct sip_message *m, struct span request_method)
{
	struct span rest = m->cseq, via, method;

	if (!m->n_via || !span_size(m->from) || !span_size(m->to) || !span_size(m->call_id) ||
	    !take_number(&rest, &m->cseq_number))
		return false;
	method = trim(rest);
	if (!span_size(method) ||
	    (m->is_request && (span_size(method) != span_size(request_method) ||
			       memcmp(method.at, request_method.at, span_size(method)))))
		return false;
	m->method = method_of(method);
	m->kind = kind_of(m);
	m->call_id_hash = sip_hash(m->call_id);
	rest = m->via[0];
	if (!sip_next_element(&rest, &via))
		return false;
	m->branch = find_parameter(via, "branch");
	return true;
}

bool sip_parse(const char *text, size_t size, struct sip_message *m)
{
	struct span rest = { text, text + size };
	struct span line, value, request_method;
	uint32_t length = NO_LENGTH;
	enum header header;
	enum line found;

	m->n_via = m->n_record_route = 0;
	m->call_id = m->from = m->to = m->cseq = m->contact = EMPTY;
	m->from_tag = m->to_tag = EMPTY;
	if (next_line(&rest, &line) != LINE_HEADER || !parse_start(line, m, &request_method))
		return false;
	while ((found = next_line(&rest, &line)) == LINE_HEADER)
		if (!split_header(line, &header, &value) || !parse_header(header, value, m, &length))
			return false;
	if (found != LINE_EMPTY || (length != NO_LENGTH && length > span_size(rest)))
		return false;
	m->body = (struct span){ rest.at, length == NO_LENGTH ? rest.end : rest.at + length };
	return complete(m, request_method);
}

enum sip_frame sip_cut_frame(const char *text, size_t size, size_t *skip, size_t *frame_length)
{
	struct span rest = { text, text + size };
	struct span line, value;
	uint32_t length = NO_LENGTH;
	enum header header;
	enum line found;

	while (rest.at < rest.end && (*rest.at == '\r' || *rest.at == '\n'))
		rest.at++;
	*skip = (size_t)(rest.at - text);
	*frame_length = 0;
	text = rest.at;
	size -= *skip;
	while ((found = next_line(&rest, &line)) == LINE_HEADER)
		if (split_header(line, &header, &value) && header == HEADER_CONTENT_LENGTH &&
		    (!take_number(&value, &length) || value.at != value.end))
			return SIP_FRAME_BROKEN;
	if (found == LINE_NONE)
		return size > SIP_MESSAGE_MAX ? SIP_FRAME_BROKEN : SIP_FRAME_PARTIAL;
	if (length == NO_LENGTH)
		return SIP_FRAME_BROKEN;
	*frame_length = (size_t)(rest.at - text) + length;
	if (*frame_length > SIP_MESSAGE_MAX)
		return SIP_FRAME_BROKEN;
	return *frame_length > size ? SIP_FRAME_PARTIAL : SIP_FRAME_WHOLE;
}
