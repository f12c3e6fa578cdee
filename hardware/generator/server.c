// SPDX-License-Identifier: MIT
/*
 * The role `sipload uas` answers calls until a signal stops it.
 *
 * The threads share one UDP socket. With several sockets, the kernel would choose the socket of a datagram by a hash of
 * the addresses. A proxy sends from one address, so all its datagrams would reach the same socket. A hash of Call-ID
 * and From tag assigns each call to one thread, which runs the call's timers. The thread that receives a message takes
 * the lock of the call's thread.
 *
 * Each thread tries to wake up every TICK_NS, and records how late it wakes up. A message that had arrived at the
 * intended time would have waited for this thread as long as the thread was late. This lateness includes every cause:
 * other messages, other programs on the CPU, and signals that stopped the thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "histogram.h"
#include "link.h"
#include "options.h"
#include "process.h"
#include "report.h"
#include "server.h"
#include "uas.h"

#define BUCKETS    (1U << 20)
#define CALLS_KEPT (8UL << 20)
#define TICK_NS    (2 * NS_PER_MS)

struct server {
	const struct options *options;
	struct server *all;
	unsigned number;
	pthread_t thread;
	pthread_mutex_t lock; /* protects `uas` */
	struct uas uas;
	struct link *link;
	uint64_t unparsable;
	uint64_t tick_ns; /* time of the next intended wake-up */
	struct histogram lateness;
};

static void on_received(void *context, const char *text, size_t size, const struct peer *from,
			uint64_t now_ns)
{
	struct server *server = context;
	struct sip_message message;
	struct server *owner;

	if (!sip_parse(text, size, &message)) {
		server->unparsable++;
		return;
	}
	owner = &server->all[uas_key(&message) % server->options->threads];
	pthread_mutex_lock(&owner->lock);
	uas_receive(&owner->uas, link_outbox(server->link), &message, from, now_ns);
	pthread_mutex_unlock(&owner->lock);
}

/* Record the lateness of each intended wake-up until now. Return the time until the next intended wake-up. */
static uint64_t keep_appointments(struct server *server, uint64_t now_ns)
{
	for (; server->tick_ns <= now_ns; server->tick_ns += TICK_NS)
		histogram_add(&server->lateness, now_ns - server->tick_ns);
	return server->tick_ns - now_ns;
}

static void *server_main(void *argument)
{
	struct server *server = argument;
	uint64_t spin_ns = server->options->spin_ns;
	uint64_t busy_ns = 0; /* time at which the thread last received messages */

	settle_thread(server->options->cpus, server->options->n_cpus, server->number);
	server->tick_ns = clock_ns() + TICK_NS;
	while (!stop_asked) {
		uint64_t now_ns = clock_ns(), tick_ns = keep_appointments(server, now_ns), next_ns, wait_ns;

		pthread_mutex_lock(&server->lock);
		uas_advance(&server->uas, link_outbox(server->link), now_ns);
		next_ns = wheel_next_ns(&server->uas.wheel);
		pthread_mutex_unlock(&server->lock);
		link_flush(server->link);
		wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
		if (spin_ns == UINT64_MAX || now_ns < busy_ns + spin_ns)
			wait_ns = 0;
		/* wait at most until the next intended wake-up, so that the thread notices a signal */
		if (link_poll(server->link, wait_ns < tick_ns ? wait_ns : tick_ns))
			busy_ns = now_ns;
		link_flush(server->link);
	}
	link_close_all(server->link);
	return NULL;
}

static const char *open_server(struct server *server, int socket)
{
	const struct options *o = server->options;
	struct uas_setup setup = { .timing = o->timing,
				   .ring_ns = o->ring_ns,
				   .host = host_of(&o->local),
				   .port = ntohs(o->local.address.sin_port),
				   .instance = new_instance(),
				   .buckets = BUCKETS,
				   .calls_kept = CALLS_KEPT / o->threads };

	pthread_mutex_init(&server->lock, NULL);
	server->link = link_open(socket, o->timing.reliable, false, o->buffer_bytes);
	if (!server->link || !uas_init(&server->uas, &setup, clock_ns()))
		return strerror(errno);
	link_set_callbacks(server->link, on_received, NULL, server);
	return NULL;
}

static bool write_report(const struct options *o, struct server *servers, int socket,
			 const struct usage *start)
{
	FILE *file = partial_open(o->report);
	struct sockets sockets = { 0 };
	struct counts counts = { 0 };
	struct uas *all = &servers[0].uas;
	struct histogram lateness = { 0 };
	uint64_t kept = 0;

	if (!file)
		return false;
	for (unsigned i = 0; i < o->threads; i++) {
		counts_add(&counts, link_counts(servers[i].link));
		counts_add(&counts, &servers[i].uas.counts);
		counts.unparsable += servers[i].unparsable;
		kept += servers[i].uas.kept;
		histogram_merge(&lateness, &servers[i].lateness);
		for (unsigned j = 0; i > 0 && j < servers[i].uas.n_peers; j++)
			uas_count_peer(all, &servers[i].uas.peers[j].address, servers[i].uas.peers[j].calls);
	}
	if (!o->timing.reliable)
		sockets_add(&sockets, socket);
	fprintf(file, "{\n  \"version\": %d,\n  \"role\": \"uas\",\n  \"transport\": \"%s\",\n",
		REPORT_VERSION, o->timing.reliable ? "tcp" : "udp");
	fprintf(file, "  \"retransmissions\": %s,\n  \"threads\": %u,\n  \"t_end\": %" PRIu64 ",\n",
		o->timing.retransmissions ? "true" : "false", o->threads, clock_ns());
	report_scheduler(file);
	report_usage(file, start);
	fprintf(file,
		"  \"calls\": {\"begun\": %" PRIu64 ", \"ended\": %" PRIu64 ", \"no_ack\": %" PRIu64
		", \"refused\": %" PRIu64 ", \"kept\": %" PRIu64 ", \"split\": %" PRIu64 "},\n  \"peers\": [",
		counts.calls_begun, counts.calls_ended, counts.calls_no_ack, counts.calls_refused, kept,
		counts.calls_split);
	for (unsigned i = 0; i < all->n_peers; i++)
		fprintf(file, "%s%" PRIu64, i ? ", " : "", all->peers[i].calls);
	fprintf(file,
		"],\n  \"lateness_ns\": {\"p50\": %" PRIu64 ", \"p99\": %" PRIu64 ", \"p999\": %" PRIu64
		", \"max\": %" PRIu64 "},\n",
		histogram_quantile(&lateness, 0.5), histogram_quantile(&lateness, 0.99),
		histogram_quantile(&lateness, 0.999), lateness.max_ns);
	report_sockets(file, &sockets);
	report_counts(file, &counts);
	fprintf(file, "}\n");
	return partial_close(file, o->report);
}

static int run_threads(const struct options *o, struct server *servers, int socket)
{
	struct usage usage = usage_now();
	unsigned started = 0;
	int error = 0;

	while (started < o->threads && !error) {
		error = pthread_create(&servers[started].thread, NULL, server_main, &servers[started]);
		started += !error;
	}
	if (error)
		fail("cannot start a thread", strerror(error));
	if (error || (o->ready && !write_ready(o->ready)))
		error = stop_asked = 1;
	for (unsigned i = 0; i < started; i++)
		pthread_join(servers[i].thread, NULL);
	if (error)
		return EXIT_BAD;
	if (!write_report(o, servers, socket, &usage))
		return fail(o->report, strerror(errno));
	return EXIT_GOOD;
}

int run_server(const struct options *options)
{
	struct server *servers = calloc(options->threads, sizeof(*servers));
	int socket = options->timing.reliable
			     ? open_tcp_listener(&options->local.address, options->buffer_bytes)
			     : open_udp(&options->local.address, NULL, options->buffer_bytes);
	const char *wrong = socket < 0 ? strerror(errno) : servers ? NULL : "not enough memory";
	unsigned opened = 0;
	int result;

	while (opened < options->threads && !wrong) {
		servers[opened].options = options;
		servers[opened].all = servers;
		servers[opened].number = opened;
		wrong = open_server(&servers[opened], socket);
		opened++;
	}
	result = wrong ? fail("cannot open the socket", wrong) : run_threads(options, servers, socket);
	for (unsigned i = 0; i < opened; i++) {
		if (servers[i].link)
			link_free(servers[i].link);
		uas_free(&servers[i].uas);
	}
	if (socket >= 0 && options->timing.reliable)
		close(socket);
	else if (socket >= 0)
		close_udp(socket);
	free(servers);
	return result;
}
