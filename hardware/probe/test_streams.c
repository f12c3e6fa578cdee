// SPDX-License-Identifier: MIT
/*
 * Unit tests of streams.c: send the events of known messages, some of them damaged, to streams.c, and check the
 * records.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/check.h"
#include "streams.h"

#define ROWS_MAX 4096
#define UAC      0
#define UAS      1
#define WORKER   3

static struct streams streams;
static struct records records;
static struct trace_record rows[ROWS_MAX];
static size_t n_rows;
static char path[] = "/tmp/test_streams.XXXXXX";

static struct probe_connection connection(unsigned peer)
{
	return (struct probe_connection){ 1, 2 + peer, 5060, (uint16_t)(40000 + peer) };
}

static void begin(void)
{
	memset(&streams, 0, sizeof(streams));
	memset(&records, 0, sizeof(records));
	records.t_end_ns = UINT64_MAX;
	streams.records = &records;
	if (!open_trace(&records.trace, path) || !start_trace(&records.trace, TRACE_MODE_STREAM))
		abort();
}

static void end(void)
{
	FILE *file;

	end_streams(&streams);
	flush_trace(&records.trace);
	close_trace(&records.trace);
	file = fopen(path, "re");
	if (!file || fseek(file, sizeof(struct trace_header), SEEK_SET))
		abort();
	n_rows = fread(rows, sizeof(*rows), ROWS_MAX, file);
	fclose(file);
}

static void segment(uint32_t event, unsigned peer, uint32_t seq, size_t length, uint64_t t)
{
	struct probe_segment made = {
		.event = event,
		.seq = seq,
		.t = t,
		.length = (uint32_t)length,
		.rmem = 77,
		.connection = connection(peer),
	};

	on_stream_event(&streams, &made, sizeof(made));
}

/* Send bytes in pieces, as stream.bpf.c does. The sanitizer reports a read past a piece's exact size. */
static void transfer(uint32_t event, unsigned slot, unsigned peer, uint32_t seq, const char *text,
		     size_t size, uint64_t t)
{
	for (size_t done = 0; done < size; done += PROBE_PIECE) {
		size_t piece = size - done < PROBE_PIECE ? size - done : PROBE_PIECE;
		struct probe_transfer *made = malloc(sizeof(made->call) + piece);

		if (!made)
			abort();
		made->call = (struct probe_call){
			.event = event,
			.tid = 100 + slot,
			.t = t,
			.t_taken = t - 1,
			.cost_ns = 11,
			.off_cpu_ns = 22,
			.switches = 1,
			.slot = slot,
			.cpu = 1,
			.seq = seq + (uint32_t)done,
			.length = (uint32_t)piece,
			.connection = connection(peer),
		};
		memcpy(made->data, text + done, piece);
		on_stream_event(&streams, made, sizeof(made->call) + piece);
		free(made);
	}
}

/* Write an INVITE with the given CSeq to `text`, and return its size. */
static size_t message(char *text, unsigned number, size_t body)
{
	int head = sprintf(
		text,
		"INVITE sip:x@y SIP/2.0\r\nCall-ID: %u@z\r\nCSeq: %u INVITE\r\nContent-Length: %zu\r\n\r\n",
		number, number, body);

	memset(text + head, 'b', body);
	return (size_t)head + body;
}

static void arrive(uint32_t seq, size_t size, uint64_t t)
{
	segment(PROBE_EVENT_ARRIVED, UAC, seq, size, t);
	segment(PROBE_EVENT_QUEUED, UAC, seq, size, t + 2);
}

static void read_at(uint32_t seq, const char *text, size_t size, uint64_t t)
{
	transfer(PROBE_EVENT_READ, WORKER, UAC, seq, text, size, t);
}

static void write_at(uint32_t seq, const char *text, size_t size, uint64_t t)
{
	segment(PROBE_EVENT_DEPARTED, UAS, seq, size, t + 3);
	transfer(PROBE_EVENT_WRITTEN, WORKER, UAS, seq, text, size, t);
}

static const struct trace_record *row_of(unsigned number)
{
	for (size_t i = 0; i < n_rows; i++)
		if (rows[i].cseq == number)
			return &rows[i];
	return NULL;
}

#define STAMPS(r, a, b, c, d, e, f)                                                     \
	CHECK((r) && (r)->t_arr == (a) && (r)->t_stack == (b) && (r)->t_sockq == (c) && \
	      (r)->t_sip_in == (d) && (r)->t_sip_out == (e) && (r)->t_dep == (f))

static void test_one_message(void)
{
	static const char trying[] = "SIP/2.0 100 Trying\r\nCall-ID: 1@z\r\nCSeq: 1 INVITE\r\nl: 0\r\n\r\n";
	char text[512];
	size_t size = message(text, 1, 10);

	begin();
	arrive(7, size, 100);
	read_at(7, text, size, 110);
	transfer(PROBE_EVENT_WRITTEN, WORKER, UAC, 900, trying, sizeof(trying) - 1, 115);
	write_at(50, text, size, 120);
	end();
	CHECK(n_rows == 1);
	STAMPS(row_of(1), 100, 102, 109, 110, 120, 123);
	CHECK(rows[0].flags == 0 && rows[0].n_send == 2 && rows[0].kind == TRACE_KIND_INVITE);
	CHECK(rows[0].tid == 103 && rows[0].length == size && rows[0].rmem == 77);
	CHECK(rows[0].in_cost_ns == 11 && rows[0].off_cpu_ns == 22 && rows[0].switches == 1);
	CHECK(streams.counts.received == 1 && streams.counts.sent == 2 && !streams.counts.broken);
}

static void test_two_in_a_read_and_a_part_of_a_third(void)
{
	char text[2048];
	size_t one = message(text, 1, 0), two = one + message(text + one, 2, 5);
	size_t three = two + message(text + two, 3, 300);
	size_t part = two + 20;

	begin();
	/* the third message begins in the first segment and in the first read */
	arrive(0, part, 100);
	arrive((uint32_t)part, three - part, 200);
	read_at(0, text, part, 110);
	/* the segments depart in another order than the worker wrote them */
	write_at(0, text + one, two - one, 120);
	write_at((uint32_t)(two - one), text, one, 130);
	read_at((uint32_t)part, text + part, three - part, 210);
	write_at((uint32_t)two, text + two, three - two, 220);
	end();
	CHECK(n_rows == 3);
	STAMPS(row_of(1), 100, 102, 109, 110, 130, 133);
	STAMPS(row_of(2), 100, 102, 109, 110, 120, 123);
	STAMPS(row_of(3), 200, 202, 209, 210, 220, 223);
	CHECK(row_of(1)->flags == TRACE_FLAG_SHARED_READ && row_of(2)->flags == TRACE_FLAG_SHARED_READ);
	CHECK(row_of(3)->flags == TRACE_FLAG_SPLIT);
}

static void test_sizes(void)
{
	static char text[200000];
	size_t large = message(text, 1, 20000);
	size_t huge;

	begin();
	/* The sequence numbers wrap at 2^32 within the message. */
	arrive(UINT32_MAX - 999, 8000, 100);
	arrive(UINT32_MAX - 999 + 8000, large - 8000, 101);
	/* the network delivers the same segment twice */
	arrive(UINT32_MAX - 999 + 8000, large - 8000, 105);
	read_at(UINT32_MAX - 999, text, 9000, 110);
	read_at(UINT32_MAX - 999 + 9000, text + 9000, large - 9000, 111);
	write_at(UINT32_MAX, text, large, 112);
	end();
	CHECK(n_rows == 1);
	STAMPS(row_of(1), 101, 103, 110, 111, 112, 115);
	CHECK(rows[0].flags == TRACE_FLAG_SPLIT && rows[0].length == large);

	begin();
	huge = message(text, 1, 70000);
	arrive(0, huge, 100);
	read_at(0, text, huge, 110);
	/* a message of legal size follows, and must be found although the message before it was too long */
	large = message(text, 2, 0);
	arrive((uint32_t)huge, large, 200);
	read_at((uint32_t)huge, text, large, 210);
	end();
	CHECK(n_rows == 1 && row_of(2) && streams.counts.broken == 1 && streams.counts.skipped_bytes == huge);
}

static void test_lost_events(void)
{
	char text[4096];
	size_t at[6] = { 0 };

	for (unsigned number = 0; number < 5; number++)
		at[number + 1] = at[number] + message(text + at[number], number + 1, 100);
	begin();
	for (unsigned number = 1; number <= 5; number++) {
		size_t from = at[number - 1], size = at[number] - from;
		uint64_t t = 1000000000ULL * number;

		/* The probe misses the arrival of the fourth message, long after the recording began. */
		if (number != 4)
			arrive((uint32_t)from, size, t);
		/* the probe misses the end of the second message */
		if (number == 2)
			size -= 30;
		read_at((uint32_t)from, text + from, size, t + 10);
	}
	end();
	CHECK(n_rows == 4 && !row_of(2) && streams.counts.broken == 1 && streams.counts.unmatched == 1);
	CHECK(row_of(4)->flags == (TRACE_FLAG_UNMATCHED | TRACE_FLAG_NO_SEND) && !row_of(4)->t_arr);
	CHECK(row_of(5)->t_arr == 5000000000ULL && row_of(5)->flags == TRACE_FLAG_NO_SEND);
}

static void test_connections_that_end(void)
{
	char text[512];
	size_t size = message(text, 1, 100);

	begin();
	arrive(0, size - 50, 100);
	read_at(0, text, size - 50, 110);
	segment(PROBE_EVENT_CLOSED, UAC, 0, 0, 120);
	/* open a second connection with the same addresses and ports */
	segment(PROBE_EVENT_OPENED, UAC, 0, 0, 130);
	arrive(5000, size, 140);
	read_at(5000, text, size, 150);
	/* the worker reads the rest after the connection has ended */
	segment(PROBE_EVENT_CLOSED, UAC, 0, 0, 155);
	arrive((uint32_t)(5000 + size), size, 154);
	size = message(text, 2, 100);
	read_at((uint32_t)(5000 + size), text, size, 160);
	end();
	CHECK(n_rows == 2 && row_of(1) && row_of(2) && streams.counts.cut == 1 && !streams.counts.broken);
	CHECK(row_of(1)->t_arr == 140 && row_of(2)->t_arr == 154);
}

static void test_sends_that_wait(void)
{
	char text[512];
	size_t size = message(text, 1, 100);

	begin();
	arrive(0, size, 100);
	read_at(0, text, size, 110);
	/* The send buffer accepts half of the message, another process writes the rest, and the message departs. */
	transfer(PROBE_EVENT_WRITTEN, WORKER, UAS, 0, text, 50, 120);
	transfer(PROBE_EVENT_WRITTEN, WORKER + 1, UAS, 50, text + 50, size - 50, 130);
	segment(PROBE_EVENT_DEPARTED, UAS, 0, 60, 140);
	segment(PROBE_EVENT_DEPARTED, UAS, 60, size - 60, 150);
	/* another process writes the whole second message */
	size = message(text, 2, 100);
	arrive((uint32_t)size, size, 200);
	read_at((uint32_t)size, text, size, 210);
	transfer(PROBE_EVENT_WRITTEN, WORKER + 1, UAS, (uint32_t)size, text, size, 220);
	end();
	CHECK(n_rows == 2);
	STAMPS(row_of(1), 100, 102, 109, 110, 120, 150);
	CHECK(row_of(1)->flags == 0 && row_of(1)->off_cpu_ns == 22);
	CHECK(row_of(2)->flags == (TRACE_FLAG_NO_DEP | TRACE_FLAG_LEFT) && row_of(2)->t_sip_out == 220);
}

static void test_recording_and_bytes_that_are_no_message(void)
{
	char text[512];
	size_t size = message(text, 1, 100);

	begin();
	streams.since_ns = 105;
	/* read the end of an earlier message, and a whole message */
	read_at(0, text + 30, size - 30, 110);
	read_at((uint32_t)size - 30, text, size, 115);
	/* read bytes that are no SIP message, such as a port scanner sends */
	transfer(PROBE_EVENT_READ, WORKER, UAS, 0, "\x16\x03\x01", 3, 116);
	/* read a message with MSG_PEEK, and then read it again */
	size = message(text, 2, 100);
	arrive(5000, size, 120);
	read_at(5000, text, size, 130);
	read_at(5000, text, size, 131);
	CHECK(count_waiting(&streams) == 1 && count_unread(&streams) == 0);
	arrive((uint32_t)(5000 + size), 40, 140);
	CHECK(count_unread(&streams) == 1);
	forget_streams(&streams);
	CHECK(count_waiting(&streams) == 0 && count_unread(&streams) == 0);
	end();
	CHECK(n_rows == 0 && !streams.counts.unmatched && streams.counts.skipped_bytes == 3 + size - 30);
}

/* Send many messages in random pieces, as segments, reads and writes. With `loss`, some events are missing. */
static void test_random(unsigned seed, unsigned loss)
{
	static char text[ROWS_MAX * 300];
	static size_t end_of[ROWS_MAX + 1];
	size_t arrived = 0, taken = 0, written = 0, whole = 0, size = 0;
	unsigned n = 500, broken_before;
	uint64_t t = 10;
	bool exact = true;

	srand(seed);
	for (unsigned i = 0; i < n; i++) {
		size += message(text + size, i + 1, (size_t)rand() % 150);
		end_of[i + 1] = size;
	}
	begin();
	while (written < size) {
		size_t piece = 1 + (size_t)rand() % 700;

		t += 10;
		switch (rand() % 3) {
		case 0:
			if (piece > size - arrived)
				piece = size - arrived;
			if (piece && (!loss || (unsigned)rand() % loss))
				arrive((uint32_t)arrived, piece, t);
			arrived += piece;
			break;
		case 1:
			if (piece > arrived - taken)
				piece = arrived - taken;
			if (piece && (!loss || (unsigned)rand() % loss))
				read_at((uint32_t)taken, text + taken, piece, t);
			taken += piece;
			break;
		default:
			/* A worker forwards a message only after it has read the whole message. */
			while (whole < n && end_of[whole + 1] <= taken)
				whole++;
			if (piece > end_of[whole] - written)
				piece = end_of[whole] - written;
			if (piece && (!loss || (unsigned)rand() % loss))
				write_at((uint32_t)written, text + written, piece, t);
			written += piece;
		}
		settle_streams(&streams);
	}
	broken_before = (unsigned)streams.counts.broken;
	end();
	if (loss) {
		CHECK(n_rows < n && broken_before > 0);
		return;
	}
	CHECK(n_rows == n && !broken_before && streams.counts.received == n && streams.counts.sent == n);
	for (size_t i = 0; i < n_rows; i++) {
		const struct trace_record *r = &rows[i];

		exact = exact && r->t_arr && r->t_arr < r->t_stack && r->t_stack < r->t_sip_in &&
			r->t_sip_in < r->t_sip_out && r->t_sip_out < r->t_dep;
	}
	CHECK(exact);
}

int main(void)
{
	int file = mkstemp(path);

	if (file < 0)
		abort();
	close(file);
	test_one_message();
	test_two_in_a_read_and_a_part_of_a_third();
	test_sizes();
	test_lost_events();
	test_connections_that_end();
	test_sends_that_wait();
	test_recording_and_bytes_that_are_no_message();
	for (unsigned seed = 1; seed <= 50; seed++) {
		test_random(seed, 0);
		test_random(seed, 20);
	}
	unlink(path);
	if (failures)
		return EXIT_FAILURE;
	puts("streams: good");
	return EXIT_SUCCESS;
}
