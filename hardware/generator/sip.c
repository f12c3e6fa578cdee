// SPDX-License-Identifier: MIT
#include "sip.h"

#define NO_LENGTH UINT32_MAX /* the message has no Content-Length header */

static const struct span EMPTY = { "", "" };

/*
 * Return the end of the quoted string that starts at s.at (RFC 3261 25.1). Return s.end if the closing quote is
 * missing.
 */
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
	*element = span_trim((struct span){ list->at, at });
	list->at = at < list->end ? at + 1 : list->end;
	return true;
}

/* Split `"Name" <uri>;parameters` or `uri;parameters` (RFC 3261 20.10) into the URI and the parameters. */
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
		*uri = span_trim((struct span){ value.at, at });
		*parameters = (struct span){ at, value.end };
	}
}

/*
 * Return the value of the parameter `name` in a list such as `;a=b;c=d`. Return an empty span without this parameter.
 */
static struct span find_parameter(struct span parameters, const char *name)
{
	while (parameters.at < parameters.end) {
		const char *semicolon = memchr(parameters.at, ';', span_size(parameters));
		struct span one = { parameters.at, semicolon ? semicolon : parameters.end };
		const char *equals = memchr(one.at, '=', span_size(one));

		parameters.at = semicolon ? semicolon + 1 : parameters.end;
		if (equals && span_is_name(span_trim((struct span){ one.at, equals }), name))
			return span_trim((struct span){ equals + 1, one.end });
	}
	return EMPTY;
}

/* Read a number that ends at a blank or at the span's end. Return false without a number, or for 2^32 and more. */
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

/*
 * Read a first line, such as `INVITE sip:a@b SIP/2.0` or `SIP/2.0 200 OK` (RFC 3261 7.1, 7.2). Set `method` for a
 * request.
 */
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
	/* check that the line continues with a URI, a blank and the version of SIP */
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

/* Return the header with this name. The comparison ignores case and accepts compact names (RFC 3261 7.3.1, 7.3.3). */
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

/* Split a line `name: value`. Return false if the colon is missing. */
static bool split_header(struct span line, enum header *header, struct span *value)
{
	const char *colon = memchr(line.at, ':', span_size(line));

	if (!colon)
		return false;
	*header = header_of(span_trim((struct span){ line.at, colon }));
	*value = span_trim((struct span){ colon + 1, line.end });
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
	/* refuse a line break in the URI, because the URI is copied into a Request-URI */
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

/* Return whether all required headers exist, and set the members that depend on several headers. */
static bool complete(struct sip_message *m, struct span request_method)
{
	struct span rest = m->cseq, via, method;

	if (!m->n_via || !span_size(m->from) || !span_size(m->to) || !span_size(m->call_id) ||
	    !take_number(&rest, &m->cseq_number))
		return false;
	method = span_trim(rest);
	if (!span_size(method) ||
	    (m->is_request && (span_size(method) != span_size(request_method) ||
			       memcmp(method.at, request_method.at, span_size(method)))))
		return false;
	m->method = method_of(method);
	m->kind = kind_of(m);
	m->call_id_hash = span_hash(m->call_id);
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
	enum span_line end;

	m->n_via = m->n_record_route = 0;
	m->call_id = m->from = m->to = m->cseq = m->contact = EMPTY;
	m->from_tag = m->to_tag = EMPTY;
	if (span_next_line(&rest, &line) != LINE_HEADER || !parse_start(line, m, &request_method))
		return false;
	while ((end = span_next_line(&rest, &line)) == LINE_HEADER)
		if (!split_header(line, &header, &value) || !parse_header(header, value, m, &length))
			return false;
	if (end != LINE_EMPTY || (length != NO_LENGTH && length > span_size(rest)))
		return false;
	m->body = (struct span){ rest.at, length == NO_LENGTH ? rest.end : rest.at + length };
	return complete(m, request_method);
}
