// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "count.h"
#include "histograms.h"
#include "histograms.skel.h"
#include "system.h"

/* The counts of the BPF programs (struct histograms), summed over all CPUs. */
struct sums {
	uint64_t waiting[HISTOGRAM_BINS];
	uint64_t service[HISTOGRAM_BINS];
	uint64_t names[HISTOGRAM_NAMES];
	uint64_t unmatched;
	uint64_t service_ns;
};

struct count {
	struct histograms_bpf *object;
	struct histograms *of_cpus; /* the counts of each CPU */
	int cpus;
	struct sums before;
	uint32_t received_before[HISTOGRAM_TASKS];
};

/* Names of requests, in the order of enum histogram_name. `ACK ` and `BYE ` have a blank: BPF compares 4 bytes. */
#define NAME(name) name,
static const char *const requests[] = { HISTOGRAM_METHODS(NAME) "other request", "not SIP" };

/* Store the sums over all CPUs in `sums`. Return false if the map cannot be read. */
static bool add_up(struct count *count, struct sums *sums)
{
	int map = bpf_map__fd(count->object->maps.counts);
	const uint32_t zero = 0;

	memset(sums, 0, sizeof(*sums));
	if (bpf_map_lookup_elem(map, &zero, count->of_cpus))
		return false;
	for (int cpu = 0; cpu < count->cpus; cpu++) {
		const struct histograms *of_cpu = &count->of_cpus[cpu];

		for (size_t i = 0; i < HISTOGRAM_BINS; i++) {
			sums->waiting[i] += of_cpu->waiting[i];
			sums->service[i] += of_cpu->service[i];
		}
		for (size_t i = 0; i < HISTOGRAM_NAMES; i++)
			sums->names[i] += of_cpu->names[i];
		sums->unmatched += of_cpu->unmatched;
		sums->service_ns += of_cpu->service_ns;
	}
	return true;
}

/* Print a pair for each bin whose count grew: the middle of the bin in ns, and the increase of the count. */
static void print_bins(const char *name, const uint64_t *before, const uint64_t *now)
{
	const char *comma = "";

	printf("\"%s\": [", name);
	for (size_t i = 0; i < HISTOGRAM_BINS; i++) {
		/* The 32-bit counts of a CPU wrap at 2^32, so subtract modulo 2^32. */
		uint32_t grown = (uint32_t)(now[i] - before[i]);
		size_t power = i / HISTOGRAM_PARTS ? i / HISTOGRAM_PARTS - 1 : 0;
		uint64_t low =
			i < HISTOGRAM_PARTS ? i : (uint64_t)(HISTOGRAM_PARTS + i % HISTOGRAM_PARTS) << power;

		if (!grown)
			continue;
		printf("%s[%" PRIu64 ", %" PRIu32 "]", comma, low + ((uint64_t)1 << power) / 2, grown);
		comma = ", ";
	}
	printf("], ");
}

static void print_names(const uint64_t *before, const uint64_t *now)
{
	const char *comma = "";

	printf("\"names\": {");
	for (size_t i = 0; i < HISTOGRAM_NAMES; i++) {
		uint32_t grown = (uint32_t)(now[i] - before[i]);
		char status[8];
		const char *name = status;
		size_t length;

		if (!grown)
			continue;
		if (i < HISTOGRAM_STATUSES)
			snprintf(status, sizeof(status), "%03u", (unsigned)(i % HISTOGRAM_STATUSES));
		else
			name = requests[i - HISTOGRAM_FIRST_METHOD];
		length = strlen(name);
		if (name[length - 1] == ' ')
			length--;
		printf("%s\"%.*s\": %" PRIu32, comma, (int)length, name, grown);
		comma = ", ";
	}
	printf("}, ");
}

static void print_tasks(struct count *count)
{
	const struct histogram_task *tasks = count->object->bss->tasks;
	const char *comma = "";

	printf("\"tasks\": {");
	for (size_t i = 0; i < HISTOGRAM_TASKS; i++) {
		uint32_t received = tasks[i].received;
		uint32_t before = count->received_before[i];

		count->received_before[i] = received;
		if (received == before)
			continue;
		/*
		 * If the count is smaller than in the last output line, another task uses the entry now, with a count
		 * that began at 0.
		 */
		printf("%s\"%u\": %u", comma, tasks[i].tid, received > before ? received - before : received);
		comma = ", ";
	}
	printf("}, ");
}

static bool print_counts(struct count *count)
{
	static struct sums now;

	if (!add_up(count, &now))
		return false;
	printf("{");
	print_bins("waiting", count->before.waiting, now.waiting);
	print_bins("service", count->before.service, now.service);
	print_names(count->before.names, now.names);
	print_tasks(count);
	printf("\"unmatched\": %" PRIu64 ", \"service_ns\": %" PRIu64 ", \"largest_queue_bytes\": %" PRIu32
	       "}\n",
	       now.unmatched - count->before.unmatched, now.service_ns - count->before.service_ns,
	       count->object->bss->largest_queue_bytes);
	count->object->bss->largest_queue_bytes = 0;
	count->before = now;
	return fflush(stdout) == 0;
}

static bool load(struct count *count, const struct options *options)
{
	struct histograms_bpf *object = histograms_bpf__open();
	int error;

	count->object = object;
	count->cpus = libbpf_num_possible_cpus();
	if (!object || count->cpus < 1) {
		complain("cannot open the BPF programs: %s", strerror(errno));
		return false;
	}
	object->rodata->cfg_port = (__u16)options->port;
	object->rodata->cfg_ports = (__u16)options->ports;
	object->rodata->cfg_netns = proxy_namespace(options);
	if (!object->rodata->cfg_netns) {
		complain("cannot read the network namespace %s: %s", options->netns, strerror(errno));
		return false;
	}
	error = -histograms_bpf__load(object);
	if (!error)
		error = -histograms_bpf__attach(object);
	if (error) {
		complain(
			"cannot count in histograms: %s (this needs Linux 6.3, BTF, CAP_BPF and CAP_PERFMON)",
			strerror(error));
		return false;
	}
	/*
	 * A look-up in the map `counts` copies one struct per CPU. The kernel rounds the size of each struct up to a
	 * multiple of 8 bytes. sizeof() is such a multiple, so the copies fit an array of structs exactly.
	 */
	count->of_cpus = keep(calloc((size_t)count->cpus, sizeof(*count->of_cpus)));
	return true;
}

/* Forget the messages in service, because their sends are unknown while the hooks are detached. */
static void forget(struct histograms_bpf *object)
{
	for (size_t i = 0; i < HISTOGRAM_TASKS; i++)
		object->bss->tasks[i].t_received = 0;
}

/* Execute a command of one character (count.h). Return false if the program cannot continue. */
static bool execute(struct count *count, char command)
{
	if (command == '0') {
		histograms_bpf__detach(count->object);
		forget(count->object);
	} else if (command == '1' && histograms_bpf__attach(count->object)) {
		complain("cannot attach again: %s", strerror(errno));
		return false;
	}
	return command != '\n' || print_counts(count);
}

int run_histograms(const struct options *options)
{
	static struct count count;
	bool good;
	char command;

	good = load(&count, options);
	if (good) {
		printf("ready\n");
		good = !fflush(stdout);
	}
	expect_input();
	while (good && read(STDIN_FILENO, &command, 1) == 1) {
		expect_input();
		good = execute(&count, command);
	}
	histograms_bpf__destroy(count.object);
	free(count.of_cpus);
	return good ? EXIT_GOOD : EXIT_BAD;
}
