// SPDX-License-Identifier: MIT
/*
 * Unit tests of classify.c. The tests copy each text to the heap at its exact size, so the sanitizer reports a read
 * past its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/check.h"
#include "classify.h"
#include "../common/trace.h"

#define VIA     "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK-1-1-0\r\n"
#define CALL_ID "1-2345@10.0.0.1"

static struct sip_class classify_copy(const char *text, size_t size)
{
	char *copy = malloc(size ? size : 1);
	struct sip_class class;

	if (!copy)
		abort();
	memcpy(copy, text, size);
	/* For an empty text, pass a pointer to the end of a 1-byte heap block. The sanitizer then reports any read. */
	class = sip_classify(size ? copy : copy + 1, size, NULL);
	free(copy);
	return class;
}

static struct sip_class classify(const char *text)
{
	return classify_copy(text, strlen(text));
}

static uint64_t fnv1a(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3ULL;
	return hash;
}

static void test_kind(const char *start_line, const char *cseq, uint8_t kind, uint32_t number)
{
	char text[512];
	struct sip_class class;

	snprintf(text, sizeof(text),
		 "%s\r\n" VIA "Call-ID: " CALL_ID "\r\nCSeq: %s\r\nContent-Length: 0\r\n\r\n", start_line,
		 cseq);
	class = classify(text);
	if (class.kind != kind || class.cseq != number || class.call_id_hash != fnv1a(CALL_ID) ||
	    !class.complete) {
		fprintf(stderr, "%s, CSeq %s: kind %u, cseq %u, hash %llx\n", start_line, cseq, class.kind,
			class.cseq, (unsigned long long)class.call_id_hash);
		failures++;
	}
}

/*
 * Check that sip_classify() returns the method or status code `name` if it gets a key for hashes, as in
 * `sipprobe watch`. If `name` is NULL, the text must count as no SIP message.
 */
static void test_detail(const char *start_line, const char *name)
{
	static const char *const names[] = { TRACE_METHODS, TRACE_STATUSES };
	const struct sip_key key = { { 1, 2 } };
	char text[256];
	unsigned detail;
	struct sip_class class;

	snprintf(text, sizeof(text), "%s\r\nCall-ID: " CALL_ID "\r\nCSeq: 4711 X\r\n\r\n", start_line);
	class = sip_classify(text, strlen(text), &key);
	detail = class.kind >> TRACE_KIND_BITS;
	if (name ? !detail || detail > sizeof(names) / sizeof(*names) || strcmp(names[detail - 1], name) != 0
		 : detail != TRACE_NOT_SIP) {
		fprintf(stderr, "%s: detail %u\n", start_line, detail);
		failures++;
	}
	CHECK(class.call_id_hash == sip_keyed_hash(&key, CALL_ID, strlen(CALL_ID)));
	CHECK(class.cseq != 4711);
}

static void test_keyed(void)
{
	const struct sip_key key = { { 0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL } };
	unsigned char bytes[15];

	for (unsigned char i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	/* Check the test vector of the paper on SipHash. */
	CHECK(sip_keyed_hash(&key, bytes, sizeof(bytes)) == 0xa129ca6149be45e5ULL);
	test_detail("REGISTER sip:x SIP/2.0", "REGISTER");
	test_detail("UPDATE sip:x SIP/2.0", "UPDATE");
	test_detail("PING sip:x SIP/2.0", "other request");
	test_detail("SIP/2.0 100 Trying", "100");
	test_detail("SIP/2.0 182 Queued", "1xx");
	test_detail("SIP/2.0 407 Proxy Authentication Required", "407");
	test_detail("SIP/2.0 488 Not Acceptable Here", "4xx");
	test_detail("SIP/2.0 503 Service Unavailable", "503");
	test_detail("SIP/2.0 603 Decline", "6xx");
	test_detail("SIP/2.0 999 ?", NULL);
	test_detail("SIP/2.0 2x0 ?", NULL);
	test_detail("GET / HTTP/1.1", NULL);
	test_detail("SIP/2.0", NULL);
	test_detail("no message", NULL);
}

static void test_kinds(void)
{
	CHECK(fnv1a("") == 0xcbf29ce484222325ULL);
	/* Check a test vector of draft-eastlake-fnv. */
	CHECK(fnv1a("foobar") == 0x85944171f73967e8ULL);
	test_kind("INVITE sip:service@10.0.0.2:5060 SIP/2.0", "1 INVITE", TRACE_KIND_INVITE, 1);
	test_kind("SIP/2.0 180 Ringing", "1 INVITE", TRACE_KIND_180, 1);
	test_kind("SIP/2.0 200 OK", "1 INVITE", TRACE_KIND_200_INVITE, 1);
	test_kind("ACK sip:service@10.0.0.2:5060 SIP/2.0", "1 ACK", TRACE_KIND_ACK, 1);
	test_kind("BYE sip:service@10.0.0.2:5060 SIP/2.0", "2 BYE", TRACE_KIND_BYE, 2);
	test_kind("SIP/2.0 200 OK", "2 BYE", TRACE_KIND_200_BYE, 2);
	test_kind("SIP/2.0 200 OK", "7 OPTIONS", TRACE_KIND_OTHER, 7);
	test_kind("SIP/2.0 100 Trying", "1 INVITE", TRACE_KIND_OTHER, 1);
	/* A status code must have three digits. */
	test_kind("SIP/2.0 2000 OK", "1 INVITE", TRACE_KIND_OTHER, 1);
	test_kind("INVITES sip:x SIP/2.0", "1 INVITES", TRACE_KIND_OTHER, 1);
	/* Methods are case-sensitive. */
	test_kind("invite sip:x SIP/2.0", "1 invite", TRACE_KIND_OTHER, 1);
	test_kind("OPTIONS sip:x SIP/2.0", "4294967295 OPTIONS", TRACE_KIND_OTHER, 4294967295U);
	test_kind("OPTIONS sip:x SIP/2.0", "99999999999999999999999 OPTIONS", TRACE_KIND_OTHER, 4294967295U);
}

static void test_header_forms(void)
{
	static const char *const forms[] = {
		"Call-ID: " CALL_ID "\r\nCSeq: 5 BYE\r\n\r\n",
		"i: " CALL_ID "\r\nCSeq: 5 BYE\r\n\r\n",
		"I:" CALL_ID "\r\nCSeq:5 BYE\r\n\r\n",
		"CALL-ID \t:\t " CALL_ID " \t\r\ncseq\t : \t5\t BYE  \r\n\r\n",
		"call-id:\r\n " CALL_ID "\r\nCSEQ: 5\r\n\tBYE\r\n\r\n",
		"Call-ID: " CALL_ID "\nCSeq: 5 BYE\n\n",
		"X-Call-ID: other\r\nCall-IDs: other\r\nCall-ID: " CALL_ID "\r\nCall-ID: second\r\n" VIA
		"CSeq: 5 BYE\r\nCSeq: 6 ACK\r\n\r\n",
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		char text[512];
		struct sip_class class;

		snprintf(text, sizeof(text), "SIP/2.0 200 OK\r\n%s", forms[i]);
		class = classify(text);
		CHECK(class.kind == TRACE_KIND_200_BYE);
		CHECK(class.cseq == 5);
		CHECK(class.call_id_hash == fnv1a(CALL_ID));
		CHECK(class.complete);
	}
}

static void test_what_is_not_there(void)
{
	struct sip_class class = classify("SIP/2.0 200 OK\r\n" VIA "\r\nCall-ID: x\r\nCSeq: 1 BYE\r\n");

	CHECK(class.kind == TRACE_KIND_OTHER && !class.call_id_hash && !class.cseq &&
	      !class.complete); /* lines after the empty line belong to the body */
	class = classify("\r\n\r\n");
	CHECK(class.kind == TRACE_KIND_OTHER && !class.complete);
	class = classify("BYE sip:x SIP/2.0\r\nCall-ID: \r\nCSeq: BYE\r\n\r\n");
	CHECK(class.kind == TRACE_KIND_BYE && !class.call_id_hash && !class.cseq && !class.complete);
	class = classify("BYE sip:x SIP/2.0\r\nCall-ID\r\n: y\r\nCSeq\r\n\r\n");
	CHECK(!class.call_id_hash && !class.complete);
}

/* Classify the text cut off at every length. Each returned value must be correct or missing. */
static void test_truncation(void)
{
	static const char text[] = "SIP/2.0 200 OK\r\n" VIA "Call-ID: " CALL_ID "\r\nCSeq: 314 INVITE\r\n"
				   "Content-Length: 0\r\n\r\nbody";
	bool was_complete = false;

	for (size_t size = 0; size < sizeof(text); size++) {
		struct sip_class class = classify_copy(text, size);

		CHECK(class.call_id_hash == 0 || class.call_id_hash == fnv1a(CALL_ID));
		CHECK(class.cseq == 0 || class.cseq == 314);
		CHECK(class.kind == TRACE_KIND_OTHER || class.kind == TRACE_KIND_200_INVITE);
		CHECK(class.complete == (class.call_id_hash && class.cseq));
		CHECK(class.complete || !was_complete);
		was_complete = class.complete;
	}
	CHECK(was_complete);
}

static void test_random(void)
{
	static const char alphabet[] = "SIP/2.0 200\r\n\r\n:\tCall-ID: iCSeq: 1 INVITE\r\n \r\n";

	srand(1);
	for (int round = 0; round < 200000; round++) {
		char text[96];
		size_t size = (size_t)rand() % sizeof(text);

		for (size_t i = 0; i < size; i++)
			text[i] =
				rand() % 8 ? alphabet[(size_t)rand() % (sizeof(alphabet) - 1)] : (char)rand();
		if (round % 2 && size > 16)
			memcpy(text, "SIP/2.0 200 OK\r\n", 16);
		CHECK(classify_copy(text, size).kind <= TRACE_KIND_200_BYE);
	}
}

static bool same(const char *a, const char *b)
{
	return sip_same_start(a, strlen(a), b, strlen(b));
}

static void test_same_start(void)
{
	CHECK(same("INVITE sip:a@b SIP/2.0\r\n", "INVITE sip:other"));
	CHECK(same("SIP/2.0 200 OK\r\n", "SIP/2.0 200 OK\r\n"));
	CHECK(same("SIP/2.0 180 Ringing\r\n", "sip/2.0 180 Ring"));
	CHECK(!same("INVITE sip:a@b SIP/2.0\r\n", "SIP/2.0 100 Tryi"));
	CHECK(!same("SIP/2.0 200 OK\r\n", "SIP/2.0 180 Ring"));
	CHECK(!same("BYE sip:a", "BYES sip:a"));
	CHECK(!same("SIP/2.0 2", "SIP/2.0 2"));
	CHECK(!same("", ""));
	CHECK(!same("INVITE", "INVITE"));
}

int main(void)
{
	test_kinds();
	test_keyed();
	test_header_forms();
	test_what_is_not_there();
	test_truncation();
	test_random();
	test_same_start();
	puts(failures ? "test_classify: FAILED" : "test_classify: passed");
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
