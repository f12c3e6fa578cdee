// SPDX-License-Identifier: MIT
/*
 * The role `sipload uac` starts each call at its scheduled time. Between the starts, the program receives messages and
 * runs timers.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "../common/calls.h"
#include "client.h"
#include "link.h"
#include "options.h"
#include "process.h"
#include "report.h"
#include "../common/schedule.h"
#include "uac.h"

#define LEAD_NS       (100 * NS_PER_MS) /* time to start the threads before t0, the start of the schedule */
#define LINGER_NS     (100 * NS_PER_MS) /* the run ends when no call has been open for this time */
#define STARTS_A_PASS 16 /* largest number of calls that a thread starts before it receives again */
#define SEND_NS       (10 * NS_PER_US) /* assumed duration of one send, used by flush_between_starts() */
#define WAIT_MAX_NS   (20 * NS_PER_MS) /* longest wait of a thread, which must notice signals in time */

struct load {
	const struct options *options;
	struct schedule schedule;
	struct uac_call *calls;
	struct call_record *records;
	uint64_t t0_ns;
	uint64_t give_up_ns; /* time at which the run ends: last scheduled start + drain time */
	uint64_t end_ns;
	struct usage usage;
	int64_t no_ports;   /* the host's counter NoPorts (report.h) before the first call */
	uint32_t instances; /* number of SIP servers, which listen on consecutive ports from --remote */
};

struct client {
	struct load *load;
	unsigned number;
	pthread_t thread;
	uint64_t next;        /* index of the next call to start */
	uint64_t oldest;      /* index of the oldest call that may still be open */
	unsigned starts_left; /* number of calls that the thread may start before it receives again */
	struct uac uac;
	struct link *link;
	int socket;
	struct peer *connections; /* TCP: the connections that several calls share, by instance */
	unsigned n_connections;   /* number of shared connections to each instance */
};

static void on_received(void *context, const char *text, size_t size, const struct peer *from,
			uint64_t now_ns)
{
	struct client *client = context;

	(void)from;
	uac_receive(&client->uac, text, size, now_ns);
}

static uint32_t instance_of(const struct client *client, uint64_t index)
{
	return client->load->schedule.calls[index].instance;
}

/* Return the index of the shared connection for a call. */
static uint64_t slot_of(const struct client *client, uint64_t index)
{
	return (uint64_t)instance_of(client, index) * client->n_connections +
	       index / client->load->options->threads % client->n_connections;
}

/* Return the address of an instance. The instances listen on consecutive ports. */
static struct sockaddr_in address_of(const struct client *client, uint32_t instance)
{
	struct sockaddr_in address = client->load->options->remote.address;

	address.sin_port = htons((uint16_t)(ntohs(address.sin_port) + instance));
	return address;
}

static void on_lost(void *context, uint64_t owner, uint64_t now_ns)
{
	struct client *client = context;
	const struct uac *uac = &client->uac;
	unsigned threads = client->load->options->threads;

	if (!client->n_connections) {
		uac_connection_lost(&client->uac, owner, now_ns);
		return;
	}
	while (client->oldest < client->next && uac->calls[client->oldest].state > UAC_LEAVING)
		client->oldest += threads;
	for (uint64_t i = client->oldest; i < client->next; i += threads)
		if (slot_of(client, i) == owner)
			uac_connection_lost(&client->uac, i, now_ns);
}

static void on_call_over(void *context, const struct peer *peer)
{
	struct client *client = context;

	if (peer->connection != NO_CONNECTION && !client->n_connections)
		link_close(client->link, peer);
}

/* Return the connection for a call. If the call's shared connection is broken, open this connection again. */
static struct peer peer_of(struct client *client, uint64_t index)
{
	const struct options *o = client->load->options;
	struct peer peer = { .address = address_of(client, instance_of(client, index)),
			     .connection = NO_CONNECTION };
	struct sockaddr_in remote = peer.address;
	struct peer *shared;

	if (!o->timing.reliable)
		return peer;
	if (!client->n_connections) {
		link_connect(client->link, &o->local.address, &remote, index, &peer);
		return peer;
	}
	shared = &client->connections[slot_of(client, index)];
	if (!link_is_open(client->link, shared) &&
	    link_connect(client->link, &o->local.address, &remote, slot_of(client, index), shared))
		link_counts(client->link)->connections_again++;
	return *shared;
}

static void start_call(struct client *client, uint64_t index)
{
	struct load *load = client->load;
	uint64_t now_ns = clock_ns();
	struct peer peer = peer_of(client, index);

	uac_start(&client->uac, link_urgent(client->link), index, &peer, now_ns);
	/* read the clock after the message is written, so that t_invite is as close to the send as possible */
	load->records[index].t_invite = load->options->timing.reliable ? now_ns : clock_ns();
	link_flush_urgent(client->link);
	if (load->options->timing.reliable && peer.connection == NO_CONNECTION)
		uac_connection_lost(&client->uac, index, clock_ns());
}

static uint64_t wait_time(const struct client *client, uint64_t next_start_ns, uint64_t now_ns)
{
	uint64_t spin_ns = client->load->options->spin_ns;
	uint64_t next_ns = next_start_ns, timer_ns = wheel_next_ns(&client->uac.wheel);

	if (timer_ns < next_ns)
		next_ns = timer_ns;
	if (spin_ns == UINT64_MAX || next_ns <= now_ns + spin_ns)
		return 0;
	return next_ns - now_ns - spin_ns < WAIT_MAX_NS ? next_ns - now_ns - spin_ns : WAIT_MAX_NS;
}

/* Start all calls that are due. Return the start time of the next call, or WHEEL_NEVER after the last call. */
static uint64_t start_due(struct client *client)
{
	const struct load *load = client->load;
	uint64_t count = load->schedule.header.count;

	while (client->starts_left && client->next < count &&
	       load->records[client->next].t_intended <= clock_ns()) {
		start_call(client, client->next);
		client->next += load->options->threads;
		client->starts_left--;
	}
	return client->next < count ? load->records[client->next].t_intended : WHEEL_NEVER;
}

/*
 * Send the waiting messages. A send takes some microseconds, during which a call may have to start. If the next start
 * is near, the function therefore sends one message at a time, and starts due calls between the sends.
 */
static uint64_t flush_between_starts(struct client *client, uint64_t next_ns)
{
	const struct outbox *outbox = link_outbox(client->link);

	while (client->starts_left && outbox_waiting(outbox) &&
	       next_ns < clock_ns() + outbox_waiting(outbox) * SEND_NS) {
		link_flush_one(client->link);
		next_ns = start_due(client);
	}
	link_flush(client->link);
	return next_ns;
}

/*
 * Make the calls of this thread. Return when all calls are started and no call has been open for `LINGER_NS`. Also
 * return at `give_up_ns`, or when a signal stops the run.
 */
static void make_calls(struct client *client)
{
	uint64_t quiet_ns = 0; /* time at which the last open call ended; 0 while a call is open */

	while (!stop_asked) {
		uint64_t next_ns, now_ns;

		client->starts_left = STARTS_A_PASS;
		next_ns = start_due(client);
		now_ns = clock_ns();
		uac_advance(&client->uac, now_ns);
		next_ns = flush_between_starts(client, next_ns);
		if (next_ns == WHEEL_NEVER) {
			if (now_ns >= client->load->give_up_ns)
				return;
			if (client->uac.open)
				quiet_ns = 0;
			else if (!quiet_ns)
				quiet_ns = now_ns;
			else if (now_ns - quiet_ns >= LINGER_NS)
				return;
		}
		link_poll(client->link, wait_time(client, next_ns, clock_ns()));
		flush_between_starts(client, next_ns);
	}
}

static void *client_main(void *argument)
{
	struct client *client = argument;

	settle_thread(client->load->options->cpus, client->load->options->n_cpus, client->number);
	make_calls(client);
	link_close_all(client->link);
	return NULL;
}

/* Open the thread's own socket and port, so that an answer reaches the thread that made the call. */
static const char *open_client(struct client *client, struct load *load, unsigned number)
{
	const struct options *o = load->options;
	struct sockaddr_in local = o->local.address;
	struct uac_setup setup = { .timing = o->timing,
				   .host = host_of(&o->local),
				   .port = (uint16_t)(ntohs(local.sin_port) + number),
				   .remote_host = host_of(&o->remote),
				   .remote_port = ntohs(o->remote.address.sin_port),
				   .instance = new_instance() + number,
				   .thread = number,
				   .threads = o->threads };
	unsigned shared;

	client->load = load;
	client->number = number;
	client->next = client->oldest = number;
	client->socket = -1;
	local.sin_port = htons(setup.port);
	if (!o->timing.reliable) {
		client->socket =
			open_udp(&local, load->instances > 1 ? NULL : &o->remote.address, o->buffer_bytes);
		if (client->socket < 0)
			return strerror(errno);
	}
	client->link = link_open(client->socket, o->timing.reliable, load->instances == 1, o->buffer_bytes);
	if (!client->link)
		return strerror(errno);
	link_set_callbacks(client->link, on_received, on_lost, client);
	uac_init(&client->uac, &setup, link_outbox(client->link), load->calls, load->records,
		 load->schedule.header.count, clock_ns());
	client->uac.call_over = on_call_over;
	client->uac.context = client;
	/*
	 * Thread t of N opens, to each instance, the connections i with i mod N = t. The same thread makes the calls i
	 * with i mod N = t.
	 */
	for (unsigned i = number; o->timing.reliable && i < o->tcp_connections; i += o->threads)
		client->n_connections++;
	shared = client->n_connections * load->instances;
	client->connections = calloc(shared + 1, sizeof(*client->connections));
	if (!client->connections)
		return "not enough memory";
	for (unsigned i = 0; i < shared; i++) {
		struct sockaddr_in remote = address_of(client, i / client->n_connections);

		if (!link_connect(client->link, &o->local.address, &remote, i, &client->connections[i]))
			return strerror(errno);
	}
	return NULL;
}

static void close_client(struct client *client)
{
	if (client->link)
		link_free(client->link);
	if (client->socket >= 0)
		close_udp(client->socket);
	free(client->connections);
}

static const char *prepare(struct load *load)
{
	const struct options *o = load->options;
	const char *wrong = schedule_read(&load->schedule, o->schedule);
	uint64_t count = load->schedule.header.count;

	if (wrong)
		return wrong;
	load->instances = 1;
	load->calls = calloc(count, sizeof(*load->calls));
	load->records = calloc(count, sizeof(*load->records));
	if (!load->calls || !load->records)
		return "not enough memory";
	for (uint64_t i = 0; i < count; i++) {
		uint64_t state = load->schedule.calls[i].random;
		double times = o->hold_exponential ? draw_exponential(&state) : 1.0;

		load->calls[i].hold_ns = (uint64_t)((double)o->hold_ns * times);
		if (load->schedule.calls[i].instance >= load->instances)
			load->instances = load->schedule.calls[i].instance + 1;
	}
	if (ntohs(o->remote.address.sin_port) + load->instances > 65536)
		return "the instances need ports above 65535";
	return NULL;
}

static void set_deadlines(struct load *load)
{
	uint64_t count = load->schedule.header.count;

	/* add 10 ns per call, because the following loop takes up to 10 ns per call and must end before t0 */
	load->t0_ns = clock_ns() + LEAD_NS + 10 * count;
	for (uint64_t i = 0; i < count; i++)
		load->records[i].t_intended = load->t0_ns + load->schedule.calls[i].offset_ns;
	load->give_up_ns = load->records[count - 1].t_intended + load->options->drain_ns;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct starts {
	uint64_t count;
	uint64_t first_ns;
	uint64_t last_ns;
	uint64_t *lateness_ns; /* sorted array with the lateness of each start */
};

static void survey_starts(const struct load *load, struct starts *starts)
{
	memset(starts, 0, sizeof(*starts));
	starts->lateness_ns = calloc(load->schedule.header.count, sizeof(*starts->lateness_ns));
	if (!starts->lateness_ns)
		return;
	for (uint64_t i = 0; i < load->schedule.header.count; i++) {
		const struct call_record *r = &load->records[i];

		if (!r->t_invite)
			continue;
		if (!starts->count || r->t_invite < starts->first_ns)
			starts->first_ns = r->t_invite;
		if (r->t_invite > starts->last_ns)
			starts->last_ns = r->t_invite;
		starts->lateness_ns[starts->count++] = r->t_invite - r->t_intended;
	}
	qsort(starts->lateness_ns, starts->count, sizeof(*starts->lateness_ns), compare_u64);
}

/* Return the quantile of the lateness for `share`, a number from 0 to 1. Return 0 if no call was started. */
static uint64_t lateness_quantile(const struct starts *starts, double share)
{
	double rank = share * (double)starts->count;

	if (!starts->count)
		return 0;
	return starts->lateness_ns[rank >= 1.0 ? (uint64_t)(rank - 1e-9) : 0];
}

static void report_calls(FILE *file, const struct load *load, const struct starts *starts)
{
	static const char *const names[CALL_OUTCOMES] = { "not_started",       "completed",
							  "timeout_invite",    "timeout_bye",
							  "rejected_invite",   "rejected_bye",
							  "unfinished_at_end", "no_connection" };
	uint64_t outcomes[CALL_OUTCOMES] = { 0 }, no_ringing = 0, late = 0;
	uint64_t span_ns = starts->last_ns - starts->first_ns;

	for (uint64_t i = 0; i < load->schedule.header.count; i++) {
		const struct call_record *r = &load->records[i];

		outcomes[r->outcome]++;
		no_ringing += r->t_ok_invite && !r->t_ringing;
		late += r->outcome == CALL_COMPLETED && r->t_ok_invite > r->t_invite + load->options->late_ns;
	}
	fprintf(file,
		"  \"calls\": {\"offered\": %" PRIu64 ", \"distinct\": %" PRIu64 ", \"started\": %" PRIu64,
		load->schedule.header.count, load->schedule.header.distinct, starts->count);
	for (int i = 0; i < CALL_OUTCOMES; i++)
		fprintf(file, ", \"%s\": %" PRIu64, names[i], outcomes[i]);
	fprintf(file, ", \"late\": %" PRIu64 ", \"no_ringing\": %" PRIu64, late, no_ringing);
	fprintf(file, "},\n  \"achieved_cps\": %.3f,\n",
		span_ns ? (double)(starts->count - 1) / ((double)span_ns / 1e9) : 0.0);
	fprintf(file,
		"  \"lateness_ns\": {\"p50\": %" PRIu64 ", \"p99\": %" PRIu64 ", \"p999\": %" PRIu64
		", \"max\": %" PRIu64 "},\n",
		lateness_quantile(starts, 0.5), lateness_quantile(starts, 0.99),
		lateness_quantile(starts, 0.999), lateness_quantile(starts, 1.0));
}

static bool write_report(const struct load *load, struct client *clients)
{
	const struct options *o = load->options;
	FILE *file = partial_open(o->report);
	struct sockets sockets = { 0 };
	struct counts counts = { 0 };
	struct starts starts;

	if (!file)
		return false;
	for (unsigned i = 0; i < o->threads; i++) {
		counts_add(&counts, link_counts(clients[i].link));
		counts_add(&counts, &clients[i].uac.counts);
		if (clients[i].socket >= 0)
			sockets_add(&sockets, clients[i].socket);
	}
	survey_starts(load, &starts);
	fprintf(file, "{\n  \"version\": %d,\n  \"role\": \"uac\",\n  \"transport\": \"%s\",\n",
		REPORT_VERSION, o->timing.reliable ? "tcp" : "udp");
	fprintf(file, "  \"retransmissions\": %s,\n  \"threads\": %u,\n  \"ended_by\": \"%s\",\n",
		o->timing.retransmissions ? "true" : "false", o->threads,
		stop_asked                         ? "signal"
		: load->end_ns >= load->give_up_ns ? "drain"
						   : "calls");
	fprintf(file,
		"  \"t0\": %" PRIu64 ",\n  \"t_first_start\": %" PRIu64 ",\n  \"t_last_start\": %" PRIu64
		",\n  \"t_end\": %" PRIu64 ",\n",
		load->t0_ns, starts.first_ns, starts.last_ns, load->end_ns);
	report_scheduler(file);
	report_usage(file, &load->usage);
	report_calls(file, load, &starts);
	report_sockets(file, &sockets);
	/* read NoPorts before the sockets close, because datagrams that arrive later would increase NoPorts */
	if (load->no_ports >= 0)
		fprintf(file, "  \"no_ports\": %" PRId64 ",\n", udp_no_ports() - load->no_ports);
	report_counts(file, &counts);
	fprintf(file, "}\n");
	free(starts.lateness_ns);
	return partial_close(file, o->report);
}

static bool write_calls(const struct load *load)
{
	struct calls_header header = { .magic = CALLS_MAGIC,
				       .version = CALLS_VERSION,
				       .record_size = sizeof(struct call_record),
				       .count = load->schedule.header.count,
				       .t0 = load->t0_ns };
	FILE *file = partial_open(load->options->calls_file);

	if (!file)
		return false;
	fwrite(&header, sizeof(header), 1, file);
	fwrite(load->records, sizeof(*load->records), header.count, file);
	return partial_close(file, load->options->calls_file);
}

static int run_threads(struct load *load, struct client *clients)
{
	const struct options *o = load->options;
	unsigned started = 0;
	int error = 0;

	set_deadlines(load);
	load->usage = usage_now();
	load->no_ports = udp_no_ports();
	while (started < o->threads && !error) {
		error = pthread_create(&clients[started].thread, NULL, client_main, &clients[started]);
		started += !error;
	}
	if (error)
		stop_asked = 1;
	for (unsigned i = 0; i < started; i++)
		pthread_join(clients[i].thread, NULL);
	load->end_ns = clock_ns();
	for (unsigned i = 0; i < o->threads; i++)
		uac_free(&clients[i].uac);
	if (error)
		return fail("cannot start a thread", strerror(error));
	if (!write_calls(load))
		return fail(o->calls_file, strerror(errno));
	if (!write_report(load, clients))
		return fail(o->report, strerror(errno));
	return EXIT_GOOD;
}

int run_client(const struct options *options)
{
	struct load load = { .options = options };
	struct client *clients = calloc(options->threads, sizeof(*clients));
	const char *wrong = clients ? prepare(&load) : "not enough memory";
	unsigned opened = 0;
	int result;

	if (wrong) {
		result = fail(options->schedule, wrong);
	} else {
		while (opened < options->threads && !wrong) {
			wrong = open_client(&clients[opened], &load, opened);
			opened++;
		}
		result = wrong ? fail("cannot open the socket", wrong) : run_threads(&load, clients);
	}
	for (unsigned i = 0; i < opened; i++)
		close_client(&clients[i]);
	free(clients);
	free(load.calls);
	free(load.records);
	schedule_free(&load.schedule);
	return result;
}
