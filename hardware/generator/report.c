// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <linux/sock_diag.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <stdio.h>
#include <sys/socket.h>
#include "link.h"
#include "report.h"

static const char *const KIND_NAMES[SIP_KINDS] = {
	[SIP_KIND_OTHER] = "other", [SIP_KIND_INVITE] = "INVITE",         [SIP_KIND_180] = "180",
	[SIP_KIND_ACK] = "ACK",     [SIP_KIND_200_INVITE] = "200_INVITE", [SIP_KIND_BYE] = "BYE",
	[SIP_KIND_100] = "100",     [SIP_KIND_200_BYE] = "200_BYE",       [SIP_KIND_FAILURE] = "failure",
};

void sockets_add(struct sockets *sum, int fd)
{
	uint32_t memory[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(memory);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size) == 0) {
		sum->drops += memory[SK_MEMINFO_DROPS];
		sum->receive_buffer_bytes = (int)memory[SK_MEMINFO_RCVBUF];
		sum->send_buffer_bytes = (int)memory[SK_MEMINFO_SNDBUF];
	}
}

int64_t udp_no_ports(void)
{
	FILE *file = fopen("/proc/net/snmp", "r");
	char line[512];
	int64_t found = -1;

	/* skip the first line that begins with Udp:, because this line has the names of the counters */
	while (file && found < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, "Udp: %*u %" SCNd64, &found) != 1)
			found = -1;
	if (file)
		fclose(file);
	return found;
}

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_usec * NS_PER_US;
}

struct usage usage_now(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (struct usage){ clock_ns(), timeval_ns(usage.ru_utime), timeval_ns(usage.ru_stime) };
}

void report_usage(FILE *file, const struct usage *start)
{
	struct usage now = usage_now();
	uint64_t user_ns = now.cpu_user_ns - start->cpu_user_ns;
	uint64_t system_ns = now.cpu_system_ns - start->cpu_system_ns;

	fprintf(file,
		"  \"wall_ns\": %" PRIu64 ",\n  \"cpu_ns\": %" PRIu64 ",\n  \"cpu_user_ns\": %" PRIu64
		",\n  \"cpu_system_ns\": %" PRIu64 ",\n",
		now.wall_ns - start->wall_ns, user_ns + system_ns, user_ns, system_ns);
}

void report_scheduler(FILE *file)
{
	fprintf(file, "  \"scheduler\": \"%s\",\n", sched_getscheduler(0) == SCHED_FIFO ? "fifo" : "other");
}

void report_sockets(FILE *file, const struct sockets *sockets)
{
	fprintf(file,
		"  \"sockets\": {\"receive_buffer_bytes\": %d, \"send_buffer_bytes\": %d, \"drops\": %" PRIu64
		"},\n",
		sockets->receive_buffer_bytes, sockets->send_buffer_bytes, sockets->drops);
}

static void report_errors(FILE *file, const char *name, const uint64_t *errors)
{
	const char *comma = "";

	fprintf(file, "  \"%s\": {", name);
	for (int i = 0; i < ERRNO_MAX; i++) {
		const char *error = strerrorname_np(i);

		if (!errors[i])
			continue;
		fprintf(file, "%s\"%s\": %" PRIu64, comma, i && error ? error : "unknown", errors[i]);
		comma = ", ";
	}
	fprintf(file, "},\n");
}

void report_counts(FILE *file, const struct counts *c)
{
	const char *comma = "";

	fprintf(file,
		"  \"connections\": {\"opened\": %" PRIu64 ", \"again\": %" PRIu64 ", \"lost\": %" PRIu64
		", \"cut\": %" PRIu64 ", \"blocked\": %" PRIu64 ", \"blocked_ns\": %" PRIu64 "},\n",
		c->connections, c->connections_again, c->connections_lost, c->connections_cut, c->blocked,
		c->blocked_ns);
	report_errors(file, "send_errors", c->send_errors);
	report_errors(file, "receive_errors", c->receive_errors);
	fprintf(file,
		"  \"unparsable\": %" PRIu64 ",\n  \"overtaken\": %" PRIu64 ",\n  \"too_long\": %" PRIu64
		",\n  \"messages\": {",
		c->unparsable, c->overtaken, c->too_long);
	for (int i = 0; i < SIP_KINDS; i++) {
		if (!(c->sent[i] | c->sent_again[i] | c->not_sent[i] | c->received[i] | c->received_again[i] |
		      c->unexpected[i]))
			continue;
		fprintf(file,
			"%s\n    \"%s\": {\"sent\": %" PRIu64 ", \"sent_again\": %" PRIu64
			", \"not_sent\": %" PRIu64 ", \"received\": %" PRIu64 ", \"received_again\": %" PRIu64
			", \"unexpected\": %" PRIu64 "}",
			comma, KIND_NAMES[i], c->sent[i], c->sent_again[i], c->not_sent[i], c->received[i],
			c->received_again[i], c->unexpected[i]);
		comma = ",";
	}
	fprintf(file, "\n  }\n");
}
