// SPDX-License-Identifier: MIT
/*
 * Unit tests of the parser, timer wheel and schedule, and of calls between a client and a server in memory. The tests
 * copy each text to the heap at its exact size, so the sanitizer reports a read past its end.
 *
 *   test_sipload                 run the tests
 *   test_sipload --corpus DIR    write the messages of a call to DIR, as first inputs of the fuzz target
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/check.h"
#include "../common/frame.h"
#include "histogram.h"
#include "../common/schedule.h"
#include "uac.h"
#include "uas.h"

#define REQUIRED                                              \
	"Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK-1\r\n" \
	"From: <sip:a@10.0.0.1>;tag=one\r\nTo: <sip:b@c>\r\n" \
	"Call-ID: 1@10.0.0.1\r\n"

static char *parsed_copy;

/* Parse a copy of the text. The spans of the message stay valid until this function is called again. */
static bool parse_bytes(const char *text, size_t size, struct sip_message *m)
{
	free(parsed_copy);
	parsed_copy = malloc(size ? size : 1);
	if (!parsed_copy)
		abort();
	memcpy(parsed_copy, text, size);
	return sip_parse(size ? parsed_copy : parsed_copy + 1, size, m);
}

static bool parse(const char *text, struct sip_message *m)
{
	return parse_bytes(text, strlen(text), m);
}

static bool is(struct span s, const char *text)
{
	return span_size(s) == strlen(text) && !memcmp(s.at, text, span_size(s));
}

static const char INVITE[] = "INVITE sip:b@10.0.0.2:5060 SIP/2.0\r\n"
			     "Via: SIP/2.0/UDP 10.0.0.9;branch=z9hG4bKa.1\r\n"
			     "v: SIP/2.0/UDP 10.0.0.1:5060 ; Branch = z9hG4bK-2\r\n"
			     "Record-Route: <sip:10.0.0.9;lr=on>\r\n"
			     "record-route : \"x, y\" <sip:p1;lr>,\r\n <sip:p2;lr>\r\n"
			     "f: \"A <;tag=no> B\" <sip:a@10.0.0.1;tag=no>;x=y;tag=one\r\n"
			     "To: sip:b@10.0.0.2;tag=two\r\n"
			     "i:\t1-2@10.0.0.1 \r\n"
			     "CSeq: 7\r\n\tINVITE\r\n"
			     "m: <sip:a@10.0.0.1:5060;transport=udp>;q=1, <sip:other>\r\n"
			     "l: 4\r\n"
			     "\r\n"
			     "v=0\nexcess";

static void test_parse_whole(void)
{
	struct sip_message m;
	struct span list, element;

	CHECK(parse(INVITE, &m));
	CHECK(m.is_request && m.method == SIP_METHOD_INVITE && m.kind == SIP_KIND_INVITE &&
	      m.cseq_number == 7);
	CHECK(m.n_via == 2 && is(m.branch, "z9hG4bKa.1"));
	CHECK(is(m.call_id, "1-2@10.0.0.1") && is(m.from_tag, "one") && is(m.to_tag, "two"));
	CHECK(is(m.contact, "sip:a@10.0.0.1:5060;transport=udp") && is(m.body, "v=0\n"));
	CHECK(m.n_record_route == 2);
	list = m.record_route[1];
	CHECK(sip_next_element(&list, &element) && is(element, "\"x, y\" <sip:p1;lr>"));
	CHECK(sip_next_element(&list, &element) && is(element, "<sip:p2;lr>"));
	CHECK(!sip_next_element(&list, &element));
	/*
	 * The expected hash in Python: h = 0xcbf29ce484222325; for b in b"1-2@10.0.0.1": h = (h ^ b) * 0x100000001b3 %
	 * 2**64
	 */
	CHECK(m.call_id_hash == 0x4af0217bdc3c7af9ULL);
}

static void test_kinds(void)
{
	static const struct {
		const char *start;
		const char *cseq;
		enum sip_kind kind;
	} cases[] = {
		{ "SIP/2.0 100 Trying", "1 INVITE", SIP_KIND_100 },
		{ "SIP/2.0 180 Ringing", "1 INVITE", SIP_KIND_180 },
		{ "sip/2.0 200 OK", "1 INVITE", SIP_KIND_200_INVITE },
		{ "SIP/2.0 202", "2 BYE", SIP_KIND_200_BYE },
		{ "SIP/2.0 503 Busy", "1 INVITE", SIP_KIND_FAILURE },
		{ "SIP/2.0 183 Progress", "1 INVITE", SIP_KIND_OTHER },
		{ "ACK sip:b SIP/2.0", "1 ACK", SIP_KIND_ACK },
		{ "BYE sip:b SIP/2.0", "2 BYE", SIP_KIND_BYE },
		{ "OPTIONS sip:b SIP/2.0", "3 OPTIONS", SIP_KIND_OTHER },
	};
	struct sip_message m;
	char text[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "%s\r\n" REQUIRED "CSeq: %s\r\n\r\n", cases[i].start,
			 cases[i].cseq);
		CHECK(parse(text, &m) && m.kind == cases[i].kind);
	}
}

static void test_parse_refused(void)
{
	static const char *const refused[] = {
		"",
		"\r\n\r\n",
		"hello",
		"INVITE sip:b SIP/2.0\r\n\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 1 INVITE\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 1 BYE\r\n\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 99999999999 INVITE\r\n\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: INVITE\r\n\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 1 INVITE\r\nno colon\r\n\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 1 INVITE\r\nContent-Length: 5\r\n\r\n1234",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 1 INVITE\r\nContent-Length: -1\r\n\r\n",
		"INVITE sip:b SIP/2.0\r\n" REQUIRED "CSeq: 1 INVITE\r\nContact: <sip:a\r\n b>\r\n\r\n",
		"INVITE sip:b SIP/3.0\r\n" REQUIRED "CSeq: 1 INVITE\r\n\r\n",
		"INVITE SIP/2.0\r\n" REQUIRED "CSeq: 1 INVITE\r\n\r\n",
		"SIP/2.0 99 Low\r\n" REQUIRED "CSeq: 1 INVITE\r\n\r\n",
		"SIP/2.0 700 High\r\n" REQUIRED "CSeq: 1 INVITE\r\n\r\n",
		"SIP/2.0 2000 Long\r\n" REQUIRED "CSeq: 1 INVITE\r\n\r\n",
		"SIP/2.0 \r\n" REQUIRED "CSeq: 1 INVITE\r\n\r\n",
	};
	struct sip_message m;
	char many[8192] = "SIP/2.0 200 OK\r\n";

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (parse(refused[i], &m)) {
			fprintf(stderr, "accepted: %s\n", refused[i]);
			failures++;
		}
	for (int i = 0; i <= SIP_LINES_MAX; i++)
		strcat(many, "Via: SIP/2.0/UDP h\r\n");
	strcat(many, REQUIRED "CSeq: 1 INVITE\r\n\r\n");
	CHECK(!parse(many, &m));
	/* the parser refuses every truncation, because the empty line or a part of the body is missing */
	for (size_t size = 0; size < sizeof(INVITE) - 1 - strlen("excess"); size++)
		CHECK(!parse_bytes(INVITE, size, &m));
}

static void test_frames(void)
{
	static const char stream[] =
		"\r\n\r\nBYE sip:b SIP/2.0\r\nl: 3\r\n\r\nabcSIP/2.0 200 OK\r\nl: 0\r\n\r\n";
	static const char *const broken[] = {
		"A\r\nl: x\r\n\r\n",
		"A\r\nl: 0\r\nContent-Length: 0\r\n\r\n",
		"SIP/2.0 200 OK\r\n\r\n",
		"A\r\nl: 65535\r\n\r\n",
	};
	size_t first = strlen("BYE sip:b SIP/2.0\r\nl: 3\r\n\r\nabc");
	struct frame frame;
	char *large = calloc(1, 70000);

	if (!large)
		abort();
	for (size_t size = 0; size < 4 + first; size++)
		CHECK(frame_cut(stream, size, &frame) == FRAME_PARTIAL);
	CHECK(frame_cut(stream, sizeof(stream) - 1, &frame) == FRAME_WHOLE);
	CHECK(frame.skip == 4 && frame.length == first);
	CHECK(frame_cut(stream + 4 + first, sizeof(stream) - 5 - first, &frame) == FRAME_WHOLE);
	CHECK(frame.skip == 0 && frame.length == strlen("SIP/2.0 200 OK\r\nl: 0\r\n\r\n"));
	for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++)
		CHECK(frame_cut(broken[i], strlen(broken[i]), &frame) == FRAME_BROKEN);
	memset(large, 'a', 70000);
	CHECK(frame_cut(large, 70000, &frame) == FRAME_BROKEN);
	free(large);
}

#define TIMERS 2000

struct wheel_test {
	struct wheel wheel;
	struct timer timers[TIMERS];
	uint64_t wanted_ns[TIMERS];
	uint64_t fired;
	uint64_t state;
};

static void on_fire(void *context, struct timer *timer, uint64_t now_ns)
{
	struct wheel_test *t = context;
	size_t i = (size_t)(timer - t->timers);
	size_t other = splitmix64(&t->state) % TIMERS;

	CHECK(t->wanted_ns[i] <= now_ns);
	t->wanted_ns[i] = 0;
	t->fired++;
	/* disarm another timer and arm it again, possibly in the slot that the wheel is processing now */
	if (t->wanted_ns[other]) {
		wheel_disarm(&t->wheel, &t->timers[other]);
		t->wanted_ns[other] = now_ns + splitmix64(&t->state) % 100000;
		wheel_arm(&t->wheel, &t->timers[other], t->wanted_ns[other]);
	}
}

/*
 * Check that timers with durations up to `span_ns` never fire early. A timer may fire late by at most one tick of the
 * wheel plus one step of the test's clock.
 */
static void test_wheel(uint64_t span_ns)
{
	const uint64_t tick_ns = 1 << WHEEL_TICK_BITS;
	uint64_t now_ns = 123456789123ULL, step_ns = span_ns / 5000 + 1, late_ns = 0;
	struct wheel_test *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	t->state = span_ns;
	wheel_init(&t->wheel, now_ns);
	CHECK(wheel_next_ns(&t->wheel) == WHEEL_NEVER);
	for (size_t i = 0; i < TIMERS; i++) {
		t->wanted_ns[i] = now_ns + splitmix64(&t->state) % span_ns;
		wheel_arm(&t->wheel, &t->timers[i], t->wanted_ns[i]);
	}
	CHECK(t->wheel.armed == TIMERS);
	for (int i = 0; i < 10100; i++) {
		uint64_t next_ns = wheel_next_ns(&t->wheel);

		for (size_t k = 0; k < TIMERS && i % 50 == 0; k++) {
			if (t->wanted_ns[k] && t->wanted_ns[k] + tick_ns + late_ns <= now_ns)
				CHECK(!"a timer is overdue");
			CHECK(!t->wanted_ns[k] || next_ns <= t->wanted_ns[k] + tick_ns);
		}
		now_ns += step_ns;
		wheel_advance(&t->wheel, now_ns, on_fire, t);
		late_ns = step_ns;
	}
	/* advance by 1 ms, because a timer that a callback armed expires within 100 us */
	wheel_advance(&t->wheel, now_ns + NS_PER_MS, on_fire, t);
	wheel_advance(&t->wheel, now_ns + 2 * NS_PER_MS, on_fire, t);
	CHECK(t->wheel.armed == 0);
	free(t);
}

/* Add times from 600 ns to 60 ms, and check the quantiles. Then add the smallest and the largest possible time. */
static void test_histogram(void)
{
	static struct histogram one, sum;

	CHECK(histogram_quantile(&sum, 0.99) == 0);
	for (uint64_t ns = 1; ns <= 100000; ns++)
		histogram_add(ns % 2 ? &one : &sum, ns * 600);
	histogram_merge(&sum, &one);
	CHECK(sum.count == 100000 && sum.max_ns == 60000000);
	for (double share = 0.001; share < 1; share += 0.001) {
		double exact = share * 60000000, found = (double)histogram_quantile(&sum, share);

		CHECK(found >= exact - 600 && found <= exact * 1.04 + 600);
	}
	CHECK(histogram_quantile(&sum, 1.0) == 60000000);
	histogram_add(&sum, 0);
	CHECK(histogram_quantile(&sum, 0.0) == 0);
	histogram_add(&sum, UINT64_MAX);
	CHECK(histogram_quantile(&sum, 1.0) == UINT64_MAX);
}

static void test_schedule(void)
{
	/* numpy computed these numbers independently, with the operations that schedule.h lists */
	static const uint64_t expected[] = { 284085, 430746, 445459, 851020, 1256687 };
	struct schedule a, b;
	uint64_t state;
	double sum = 0.0;

	CHECK(!schedule_draw(&a, SCHEDULE_EXPONENTIAL, 2000.0, 100000, 1));
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		CHECK(a.calls[i].offset_ns == expected[i]);
	CHECK(a.calls[99999].offset_ns == 49821846259ULL && a.header.distinct == 100000);
	/* the random numbers of the calls come from a second generator, whose seed is the bitwise complement of the first */
	state = ~1ULL;
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t own = a.calls[i].random;

		CHECK(splitmix64(&own) == splitmix64(&state));
	}
	CHECK(!schedule_draw(&b, SCHEDULE_EXPONENTIAL, 2000.0, 100000, 2));
	CHECK(a.calls[0].offset_ns != b.calls[0].offset_ns);
	for (uint64_t i = 1; i < 100000; i++)
		sum += (double)(a.calls[i].offset_ns - a.calls[i - 1].offset_ns);
	CHECK(sum / 99999.0 > 495000.0 && sum / 99999.0 < 505000.0);
	schedule_free(&a);
	schedule_free(&b);
	CHECK(!schedule_draw(&a, SCHEDULE_CONSTANT, 3.0, 4, 9));
	CHECK(a.calls[0].offset_ns == 0 && a.calls[1].offset_ns == 333333333);
	CHECK(a.calls[3].offset_ns == 1000000000);
	schedule_free(&a);
	CHECK(schedule_draw(&a, SCHEDULE_CONSTANT, 3.0, 0, 9));
	schedule_free(&a);
	CHECK(schedule_draw(&a, SCHEDULE_CONSTANT, 0.0, 1, 9));
	schedule_free(&a);
}

static const char *schedule_of(struct schedule *schedule, const char *text, double rate_cps, uint64_t seed)
{
	char path[] = "/tmp/test_sipload.XXXXXX";
	int fd = mkstemp(path);
	const char *wrong;

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
	wrong = schedule_draw_blocks(schedule, SCHEDULE_EXPONENTIAL, rate_cps, path, seed);
	unlink(path);
	return wrong;
}

/*
 * Check the calls of one window, which begin at index `first`. These calls must equal the first calls of a schedule
 * that is sampled from `seed`, up to `length_ns`. Return the index of the first call after the window.
 */
static uint64_t check_window(const struct schedule *found, uint64_t first, uint64_t start_ns,
			     uint64_t length_ns, uint64_t seed)
{
	struct schedule drawn;
	uint64_t i = 0;

	CHECK(!schedule_draw(&drawn, SCHEDULE_EXPONENTIAL, found->header.rate_cps, 10000, seed));
	for (; drawn.calls[i].offset_ns < length_ns; i++) {
		CHECK(first + i < found->header.count);
		CHECK(found->calls[first + i].offset_ns == start_ns + drawn.calls[i].offset_ns);
		CHECK(found->calls[first + i].random == drawn.calls[i].random);
	}
	schedule_free(&drawn);
	return first + i;
}

static void test_blocks(void)
{
	static const uint64_t lengths[] = { 500000000, 500000000, 500000000, 450000001, 450000001 };
	static const uint32_t instances[] = { 0, 3, 0, 0, 255 };
	struct schedule a;
	uint64_t next = 0, start_ns = 0, edge, state = 7, in_block[2] = { 0 };

	CHECK(!schedule_of(
		&a, "# two blocks\n0 500000000\n0 500000000 3\n0\t500000000 \n\n9 450000001\n9 450000001 255",
		2000.0, 7));
	for (int i = 0; i < 5; i++) {
		uint64_t block_state, first = next;

		state = 7;
		block_state = splitmix64(&state) + (i < 3 ? 0 : 9);
		next = check_window(&a, next, start_ns, lengths[i], splitmix64(&block_state));
		in_block[i >= 3] = next - first;
		CHECK(a.calls[first].instance == instances[i] && a.calls[next - 1].instance == instances[i]);
		start_ns += lengths[i];
	}
	CHECK(next == a.header.count && a.header.distinct == in_block[0] + in_block[1]);
	CHECK(in_block[0] > 900 && in_block[0] < 1100 &&
	      a.calls[0].offset_ns != a.calls[3 * in_block[0]].offset_ns);
	schedule_free(&a);

	/* a call exactly at the end belongs to the next window, and an earlier call belongs to this window */
	CHECK(!schedule_of(&a, "0 500000000\n", 2000.0, 7));
	edge = a.calls[a.header.count - 1].offset_ns;
	next = a.header.count;
	schedule_free(&a);
	for (uint64_t more = 0; more < 2; more++) {
		char text[64];

		snprintf(text, sizeof(text), "0 %llu\n0 500000000\n", (unsigned long long)(edge + more));
		CHECK(!schedule_of(&a, text, 2000.0, 7));
		/*
		 * a shorter window repeats the first calls of the longer window, so the number of different calls
		 * stays the same
		 */
		CHECK(a.header.count == 2 * next - 1 + more && a.header.distinct == next);
		CHECK(a.calls[next - 2].offset_ns < edge &&
		      a.calls[next - 1 + more].offset_ns >= edge + more);
		schedule_free(&a);
	}
}

static void test_wrong_blocks(void)
{
	static const char *const wrong[] = { "",
					     "0\n",
					     "0 0\n",
					     "0 1\n",
					     "0 -5\n",
					     "-1 500000000\n",
					     "0 5e8\n",
					     "0 500000000 -1\n",
					     "0 500000000 256\n",
					     "0 500000000 1 1\n",
					     "1 500000000\n0 500000000\n",
					     "0500000000",
					     "x 500000000",
					     "0 99999999999999999999999\n",
					     "0 1000000000000000001\n" };
	struct schedule a;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(schedule_of(&a, wrong[i], 2000.0, 7));
		schedule_free(&a);
	}
	CHECK(schedule_of(&a, "0 500000000\n", 0.0, 7));
	schedule_free(&a);
	CHECK(schedule_draw_blocks(&a, SCHEDULE_EXPONENTIAL, 2000.0, "/nonexistent", 7));
}

static void test_schedule_files(void)
{
	struct schedule a, b;
	char path[] = "/tmp/test_sipload.XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0)
		abort();
	close(fd);
	CHECK(!schedule_draw(&a, SCHEDULE_CONSTANT, 2.0, 4, 1));
	CHECK(a.header.count == 4 && a.calls[1].offset_ns == 500000000 && a.calls[3].offset_ns == 1500000000);
	CHECK(a.header.rate_cps == 2.0 && a.header.law == SCHEDULE_CONSTANT);
	CHECK(!schedule_write(&a, path) && !schedule_read(&b, path));
	CHECK(!memcmp(&a.header, &b.header, sizeof(a.header)) && !memcmp(a.calls, b.calls, 64));
	schedule_free(&b);
	a.header.distinct = 5;
	CHECK(!schedule_write(&a, path) && schedule_read(&b, path));
	schedule_free(&b);
	a.header.distinct = 4;
	a.calls[3].offset_ns = a.calls[2].offset_ns - 1;
	CHECK(!schedule_write(&a, path) && schedule_read(&b, path));
	schedule_free(&b);
	CHECK(truncate(path, 100) == 0 && schedule_read(&b, path));
	schedule_free(&b);
	CHECK(truncate(path, 20) == 0 && schedule_read(&b, path));
	schedule_free(&b);
	schedule_free(&a);
	unlink(path);
	CHECK(schedule_read(&b, path));
}

#define CALLS 50

/* A client, a server, and a simple proxy between them that may lose or duplicate each message. */
struct world {
	struct uac uac;
	struct uas uas;
	struct outbox *to_uas;
	struct outbox *to_uac;
	struct counts uac_sent;
	struct counts uas_sent;
	struct uac_call calls[CALLS];
	struct call_record records[CALLS];
	uint64_t now_ns;
	uint64_t state;
	unsigned lost_percent;
	unsigned doubled_percent;
	bool routed; /* the proxy inserts Via and Record-Route */
	bool deaf;   /* the server receives no message */
	const char *corpus;
	unsigned corpus_files;
};

static struct world *world;

static void count_sent(struct counts *counts, const struct outgoing *m)
{
	if (m->again)
		counts->sent_again[m->kind]++;
	else
		counts->sent[m->kind]++;
}

static void flush_nothing(struct outbox *outbox, unsigned count)
{
	(void)count;
	CHECK(!"the outbox is full");
	outbox->used = 0;
}

static unsigned times_delivered(void)
{
	uint64_t dice = splitmix64(&world->state) % 100;

	if (dice < world->lost_percent)
		return 0;
	return dice >= 100 - world->doubled_percent ? 2 : 1;
}

static void save(const char *text, size_t size)
{
	char path[4096];
	FILE *file;

	if (!world->corpus)
		return;
	snprintf(path, sizeof(path), "%s/message-%02u", world->corpus, world->corpus_files++);
	file = fopen(path, "wb");
	if (!file || fwrite(text, 1, size, file) != size || fclose(file)) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
}

/* Change a request as a proxy does: add a Via at the top, and a Record-Route. */
static size_t route(const char *text, size_t size, char *routed, size_t room)
{
	const char *line = memchr(text, '\n', size);
	size_t start = (size_t)(line + 1 - text);
	int inserted = snprintf(routed, room,
				"%.*sRecord-Route: <sip:10.0.0.9;lr=on>, <sip:10.0.0.8;lr>\r\n"
				"Via: SIP/2.0/UDP 10.0.0.9;branch=z9hG4bKcydzigwkX\r\n",
				(int)start, text);

	memcpy(routed + inserted, text + start, size - start);
	return (size_t)inserted + size - start;
}

/* Change an answer as a proxy does: remove the proxy's Via. */
static size_t unroute(const char *text, size_t size, char *plain)
{
	const char *via = memmem(text, size, "Via:", 4);
	const char *end = memchr(via, '\n', size - (size_t)(via - text));
	size_t before = (size_t)(via - text), after = size - (size_t)(end + 1 - text);

	memcpy(plain, text, before);
	memcpy(plain + before, end + 1, after);
	return before + after;
}

static void deliver_to_uas(const struct outgoing *m)
{
	const struct peer from = { .connection = NO_CONNECTION };
	char text[OUTBOX_BYTES + 256];
	struct sip_message parsed;
	size_t size = m->size;

	memcpy(text, m->text, size);
	if (world->routed)
		size = route(m->text, size, text, sizeof(text));
	save(text, size);
	CHECK(parse_bytes(text, size, &parsed));
	if (!world->deaf)
		uas_receive(&world->uas, world->to_uac, &parsed, &from, world->now_ns);
}

static void deliver_to_uac(const struct outgoing *m)
{
	char text[OUTBOX_BYTES];
	size_t size = m->size;

	memcpy(text, m->text, size);
	if (world->routed)
		size = unroute(m->text, size, text);
	save(text, size);
	uac_receive(&world->uac, text, size, world->now_ns);
}

static void exchange(struct outbox *outbox, struct counts *counts, void (*deliver)(const struct outgoing *))
{
	struct outgoing *messages = malloc(sizeof(outbox->messages));
	unsigned used = outbox->used;

	if (!messages)
		abort();
	memcpy(messages, outbox->messages, sizeof(outbox->messages));
	outbox->used = 0;
	for (unsigned i = 0; i < used; i++) {
		count_sent(counts, &messages[i]);
		for (unsigned k = times_delivered(); k > 0; k--)
			deliver(&messages[i]);
	}
	free(messages);
}

static void pass_time(uint64_t ns)
{
	world->now_ns += ns;
	uac_advance(&world->uac, world->now_ns);
	uas_advance(&world->uas, world->to_uac, world->now_ns);
	while (world->to_uas->used || world->to_uac->used) {
		exchange(world->to_uas, &world->uac_sent, deliver_to_uas);
		exchange(world->to_uac, &world->uas_sent, deliver_to_uac);
	}
}

static void begin_world(bool retransmissions, uint64_t hold_ns, uint64_t ring_ns)
{
	static const char host[] = "10.0.0.1";
	const struct timing timing = { 500 * NS_PER_MS, 4 * NS_PER_S, 5 * NS_PER_S, retransmissions, false };
	const struct span name = { host, host + strlen(host) };
	struct uac_setup uac = { .timing = timing,
				 .host = name,
				 .port = 5060,
				 .remote_host = name,
				 .remote_port = 5070,
				 .instance = 0x5eed,
				 .threads = 1 };
	struct uas_setup uas = { .timing = timing,
				 .ring_ns = ring_ns,
				 .host = name,
				 .port = 5070,
				 .instance = 0xbeef,
				 .buckets = 16,
				 .calls_kept = 1000 };

	world = calloc(1, sizeof(*world));
	if (!world)
		abort();
	world->to_uas = calloc(1, sizeof(*world->to_uas));
	world->to_uac = calloc(1, sizeof(*world->to_uac));
	if (!world->to_uas || !world->to_uac)
		abort();
	world->now_ns = NS_PER_S;
	world->state = 4711;
	world->to_uas->flush = world->to_uac->flush = flush_nothing;
	world->to_uas->counts = &world->uac_sent;
	world->to_uac->counts = &world->uas_sent;
	for (size_t i = 0; i < CALLS; i++)
		world->calls[i].hold_ns = hold_ns;
	uac_init(&world->uac, &uac, world->to_uas, world->calls, world->records, CALLS, world->now_ns);
	CHECK(uas_init(&world->uas, &uas, world->now_ns));
}

static void end_world(void)
{
	uac_free(&world->uac);
	uas_free(&world->uas);
	free(world->to_uas);
	free(world->to_uac);
	free(world);
}

static void start_calls(unsigned count)
{
	const struct peer peer = { .connection = NO_CONNECTION };

	for (unsigned i = 0; i < count; i++) {
		world->records[i].t_invite = world->now_ns;
		uac_start(&world->uac, world->to_uas, i, &peer, world->now_ns);
		pass_time(NS_PER_MS);
	}
}

static unsigned outcomes(enum call_outcome outcome)
{
	unsigned count = 0;

	for (unsigned i = 0; i < CALLS; i++)
		count += world->records[i].outcome == outcome;
	return count;
}

static uint64_t unexpected(const struct counts *counts)
{
	uint64_t sum = counts->unparsable;

	for (int i = 0; i < SIP_KINDS; i++)
		sum += counts->unexpected[i];
	return sum;
}

static void run_s(unsigned seconds)
{
	for (unsigned i = 0; i < 200 * seconds; i++)
		pass_time(5 * NS_PER_MS);
}

static void test_clean_calls(bool routed, uint64_t hold_ns, uint64_t ring_ns)
{
	static const enum sip_kind requests[] = { SIP_KIND_INVITE, SIP_KIND_ACK, SIP_KIND_BYE };
	static const enum sip_kind answers[] = { SIP_KIND_180, SIP_KIND_200_INVITE, SIP_KIND_200_BYE };

	begin_world(true, hold_ns, ring_ns);
	world->routed = routed;
	start_calls(CALLS);
	run_s(1);
	CHECK(outcomes(CALL_COMPLETED) == CALLS && world->uac.open == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(world->uac_sent.sent[requests[i]] == CALLS && !world->uac_sent.sent_again[requests[i]]);
		CHECK(world->uas.counts.received[requests[i]] == CALLS);
		CHECK(world->uas_sent.sent[answers[i]] == CALLS && !world->uas_sent.sent_again[answers[i]]);
		CHECK(world->uac.counts.received[answers[i]] == CALLS);
	}
	CHECK(world->uac.counts.overtaken == 0);
	CHECK(!unexpected(&world->uac.counts) && !unexpected(&world->uas.counts));
	for (unsigned i = 0; i < CALLS; i++) {
		const struct call_record *r = &world->records[i];

		CHECK(r->t_bye - r->t_ack >= hold_ns && r->t_ok_invite - r->t_ringing >= ring_ns);
		CHECK(r->status == 200 && r->call_id_hash && r->t_first_response == r->t_ringing &&
		      r->t_ok_bye);
	}
	run_s(40);
	CHECK(world->uas.kept == 0 && world->uac.wheel.armed == 0 && world->uas.wheel.armed == 0);
	end_world();
}

/* Check that the client reverses the route set and sends to the Contact (RFC 3261 12.1.2, 12.2.1.1). */
static void test_routes(void)
{
	static const char target[] = "BYE sip:callee@10.0.0.1:5070 SIP/2.0\r\n";
	static const char routes[] = "Route: <sip:10.0.0.8;lr>\r\nRoute: <sip:10.0.0.9;lr=on>\r\n";
	const struct outgoing *bye;
	struct sip_message m;

	begin_world(true, NS_PER_S, 0);
	world->routed = true;
	start_calls(1);
	exchange(world->to_uas, &world->uac_sent, deliver_to_uas);
	exchange(world->to_uac, &world->uas_sent, deliver_to_uac);
	pass_time(2 * NS_PER_S);
	/* read the BYE in the outbox, which keeps the bytes of its last message */
	bye = &world->to_uas->messages[0];
	CHECK(sip_parse(bye->text, bye->size, &m) && m.kind == SIP_KIND_BYE);
	CHECK(memmem(bye->text, bye->size, target, strlen(target)));
	CHECK(memmem(bye->text, bye->size, routes, strlen(routes)));
	end_world();
}

/* Check that each call has another user in To, and that all requests of a call have the same user. */
static void test_callees(void)
{
	const struct peer peer = { .connection = NO_CONNECTION };

	begin_world(true, NS_PER_S, 0);
	for (unsigned i = 0; i < 2; i++) {
		/* the outbox keeps the bytes of its last message */
		const struct outgoing *last = &world->to_uas->messages[0];
		char to[64];

		snprintf(to, sizeof(to), "\r\nTo: <sip:%06x@10.0.0.1:5070>", i);
		uac_start(&world->uac, world->to_uas, i, &peer, world->now_ns);
		CHECK(memmem(last->text, last->size, to, strlen(to)) && !memcmp(last->text, "INVITE", 6));
		pass_time(NS_PER_MS);
		CHECK(memmem(last->text, last->size, to, strlen(to)) && !memcmp(last->text, "ACK", 3));
		pass_time(2 * NS_PER_S);
		CHECK(memmem(last->text, last->size, to, strlen(to)) && !memcmp(last->text, "BYE", 3));
	}
	end_world();
}

static void test_lossy_calls(void)
{
	uint64_t sent = 0, arrived = 0;

	begin_world(true, 200 * NS_PER_MS, 100 * NS_PER_MS);
	world->lost_percent = 30;
	world->doubled_percent = 10;
	start_calls(CALLS);
	run_s(200);
	CHECK(outcomes(CALL_COMPLETED) >= CALLS - 2);
	CHECK(outcomes(CALL_COMPLETED) + outcomes(CALL_TIMEOUT_INVITE) + outcomes(CALL_TIMEOUT_BYE) +
		      outcomes(CALL_NOT_STARTED) + (unsigned)world->uac.open ==
	      CALLS);
	CHECK(world->uac_sent.sent[SIP_KIND_INVITE] == CALLS);
	for (unsigned i = 0; i < CALLS; i++) {
		sent += world->records[i].invite_again;
		arrived += world->records[i].ok_again;
	}
	CHECK(sent && sent == world->uac_sent.sent_again[SIP_KIND_INVITE]);
	CHECK(arrived && arrived == world->uac.counts.received_again[SIP_KIND_200_INVITE]);
	CHECK(world->uas_sent.sent_again[SIP_KIND_200_INVITE] && world->uac_sent.sent_again[SIP_KIND_BYE]);
	CHECK(world->uas.counts.received_again[SIP_KIND_INVITE]);
	CHECK(world->uas.kept == 0);
	end_world();
}

/*
 * Without answers, the client sends INVITE at 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s. The call ends after 32 s
 * (17.1.1.2).
 */
static void test_deaf_server(void)
{
	begin_world(true, 0, 0);
	world->deaf = true;
	start_calls(2);
	run_s(31);
	CHECK(world->uac.open == 2);
	run_s(2);
	CHECK(outcomes(CALL_TIMEOUT_INVITE) == 2 && world->records[0].invite_again == 6);
	end_world();
	begin_world(false, 0, 0);
	world->deaf = true;
	start_calls(2);
	run_s(33);
	CHECK(outcomes(CALL_TIMEOUT_INVITE) == 2 && world->records[0].invite_again == 0);
	end_world();
	/*
	 * without answers, the client sends BYE at 0.5, 1.5, 3.5 and 7.5 s, and then every 4 s up to 31.5 s (17.1.2.2)
	 */
	begin_world(true, NS_PER_S, 0);
	start_calls(1);
	world->deaf = true;
	run_s(34);
	CHECK(outcomes(CALL_TIMEOUT_BYE) == 1 && world->records[0].bye_again == 10);
	end_world();
}

static void reply(const char *status, unsigned index, const char *method, char letter)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "SIP/2.0 %s\r\nVia: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK-00005eed-%08x-%c\r\n"
		 "From: <sip:caller@10.0.0.1:5060>;tag=00005eed%08x\r\nTo: "
		 "<sip:callee@10.0.0.1:5070>;tag=x\r\n"
		 "Call-ID: %08x-00005eed@10.0.0.1\r\nCSeq: %d %s\r\nContent-Length: 0\r\n\r\n",
		 status, index, letter, index, index, letter == 'b' ? 2 : 1, method);
	uac_receive(&world->uac, text, strlen(text), world->now_ns);
	pass_time(NS_PER_MS);
}

static void test_answers(void)
{
	begin_world(true, NS_PER_S, 0);
	world->deaf = true;
	start_calls(3);
	reply("503 Service Unavailable", 0, "INVITE", 'i');
	CHECK(world->records[0].outcome == CALL_REJECTED_INVITE && world->records[0].status == 503);
	CHECK(world->uac_sent.sent[SIP_KIND_ACK] == 1);
	reply("503 Service Unavailable", 0, "INVITE", 'i');
	CHECK(world->uac_sent.sent_again[SIP_KIND_ACK] == 1);
	CHECK(world->uac.counts.received_again[SIP_KIND_FAILURE] == 1);
	/* a provisional answer stops timer A, and a 180 that comes after its 200 counts as overtaken */
	reply("100 Trying", 1, "INVITE", 'i');
	run_s(1);
	CHECK(world->records[1].invite_again == 0);
	reply("200 OK", 1, "INVITE", 'i');
	reply("180 Ringing", 1, "INVITE", 'i');
	CHECK(world->uac.counts.received[SIP_KIND_180] == 1 && world->uac.counts.overtaken == 1);
	CHECK(!unexpected(&world->uac.counts) && world->records[1].t_ringing > world->records[1].t_ok_invite);
	/* the client has already received 180 and 200, so repeated 180 and 200 count as retransmissions */
	reply("180 Ringing", 1, "INVITE", 'i');
	CHECK(world->uac.counts.received_again[SIP_KIND_180] == 1 && world->uac.counts.overtaken == 1);
	reply("200 OK", 1, "INVITE", 'i');
	CHECK(world->records[1].ok_again == 1 && world->uac_sent.sent_again[SIP_KIND_ACK] == 2);
	reply("200 OK", 1, "BYE", 'b');
	CHECK(world->uac.counts.unexpected[SIP_KIND_200_BYE] == 1);
	run_s(1);
	reply("481 Gone", 1, "BYE", 'b');
	CHECK(world->records[1].outcome == CALL_REJECTED_BYE && world->records[1].status == 481);
	/*
	 * the following messages are unexpected: they belong to another process, to no call, or to another transaction
	 */
	reply("200 OK", 77, "INVITE", 'i');
	reply("200 OK", 2, "INVITE", 'b');
	CHECK(world->uac.counts.unexpected[SIP_KIND_200_INVITE] == 2);
	uac_receive(&world->uac, INVITE, strlen(INVITE), world->now_ns);
	CHECK(world->uac.counts.unexpected[SIP_KIND_INVITE] == 1);
	uac_receive(&world->uac, "x", 1, world->now_ns);
	CHECK(world->uac.counts.unparsable == 1);
	uac_free(&world->uac);
	CHECK(world->records[2].outcome == CALL_UNFINISHED);
	end_world();
}

/*
 * Send the server requests that belong to no call, and then an INVITE without an ACK. The server repeats its 200 at
 * 0.5, 1.5, 3.5 and 7.5 s, and then every 4 s.
 */
static void test_server_alone(void)
{
	const struct peer from = { .connection = NO_CONNECTION };
	struct sip_message m;
	char text[512];

	begin_world(true, 0, 0);
	for (const char *const *method =
		     (const char *const[]){ "BYE", "CANCEL", "OPTIONS", "ACK", "INVITE", NULL };
	     *method; method++) {
		snprintf(text, sizeof(text), "%s sip:b SIP/2.0\r\n" REQUIRED "CSeq: 5 %s\r\n\r\n", *method,
			 *method);
		CHECK(parse(text, &m));
		uas_receive(&world->uas, world->to_uac, &m, &from, world->now_ns);
	}
	CHECK(world->to_uac->used == 5 && world->to_uac->messages[4].kind == SIP_KIND_200_INVITE);
	CHECK(!strncmp(world->to_uac->messages[1].text, "SIP/2.0 481", 11));
	CHECK(!strncmp(world->to_uac->messages[2].text, "SIP/2.0 405", 11));
	CHECK(world->uas.counts.unexpected[SIP_KIND_ACK] == 1 &&
	      world->uas.counts.unexpected[SIP_KIND_BYE] == 1);
	world->lost_percent = 100;
	run_s(33);
	CHECK(world->uas_sent.sent_again[SIP_KIND_200_INVITE] == 10);
	CHECK(world->uas.counts.calls_no_ack == 1 && world->uas.kept == 0);
	end_world();
}

static void write_corpus(const char *directory)
{
	begin_world(true, 0, 0);
	world->corpus = directory;
	start_calls(1);
	world->routed = true;
	start_calls(2);
	save(INVITE, sizeof(INVITE) - 1);
	end_world();
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--corpus")) {
		write_corpus(argv[2]);
		return 0;
	}
	test_parse_whole();
	test_kinds();
	test_parse_refused();
	test_frames();
	test_wheel(20000);
	test_wheel(3 * NS_PER_MS);
	test_wheel(900 * NS_PER_MS);
	test_wheel(40 * NS_PER_S);
	test_histogram();
	test_schedule();
	test_schedule_files();
	test_blocks();
	test_wrong_blocks();
	test_clean_calls(false, 0, 0);
	test_clean_calls(true, 300 * NS_PER_MS, 50 * NS_PER_MS);
	test_routes();
	test_callees();
	test_lossy_calls();
	test_deaf_server();
	test_answers();
	test_server_alone();
	free(parsed_copy);
	if (failures)
		fprintf(stderr, "%d checks failed\n", failures);
	else
		puts("all checks passed");
	return failures != 0;
}
