// SPDX-License-Identifier: MIT
/*
 * sipaccount reports which tasks and interrupts used the time of some CPUs, and which of them kept a proxy from running.
 *
 * USAGE
 *   sipaccount --cpu N [--cpu N ...] [--group PGID ...] [--own PID ...] [--sample MS] [--bursts FILE]
 *              --report FILE --ready FILE
 *
 * WHAT IT DOES
 *   sipaccount attaches the programs of account.bpf.c, starts counting, and creates the file of --ready. At SIGTERM or
 *   SIGINT, it writes a report, one JSON object:
 *     cpus      per CPU: the ns of each owner (account.h), their sum `total_ns`, and `stolen_ns`, the time that the hypervisor
 *               took from the CPU (a multiple of the tick of /proc/stat). The owners' times include the stolen time, because
 *               the clock continues while the hypervisor runs something else
 *     tasks     the tasks of the proxy (process groups --group), and the other tasks that ran longest
 *     wait      the wait of a proxy's task for its CPU in which competitors used this CPU for the longest time, or null
 *     gaps      the longest times in which no task of the proxy ran or was runnable, `[from, to]` (CLOCK_MONOTONIC)
 *     stopped   the longest time that a task of the proxy was stopped, and the number of stops by a tracer
 *     samples   with --sample, one entry every MS milliseconds: `t_ns` (CLOCK_MONOTONIC) and `competed_ns`, the time that
 *               realtime and fair competitors had used on all the CPUs until then. Without --sample, the two are empty
 *     tasks_lost     how often the table had no room for a task
 *     runs, run_ns   number and total time of the BPF programs' runs, if the kernel counts them (kernel.bpf_stats_enabled)
 *   With --bursts, sipaccount also writes every burst of at least 20 us, by a softirq or by a task outside the proxy. The
 *   file is one JSON object with one line per burst:
 *     bursts    entries `[cpu, from, to, owner, name, pid]`, per CPU in the order of their ends (CLOCK_MONOTONIC in ns).
 *               `owner` is a name of account.h. A softirq has its kernel name and the pid 0. A burst of a task includes the
 *               interrupts and softirqs during the burst
 *     lost      the number of bursts for which the ring buffer had no room
 *   Descendants of --own and tasks in sipsched's control groups count as sipsched's programs. sipaccount pins no BPF object, so
 *   the kernel removes the BPF programs when sipaccount ends.
 *   The exit code is 0 on success, 1 with one line on stderr for an error, and 2 for wrong usage.
 *
 * sipaccount needs the initial PID namespace, BTF (CONFIG_DEBUG_INFO_BTF), and either root or CAP_BPF and CAP_PERFMON.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "account.h"
#include "account.skel.h"
#include "../common/arguments.h"
#include "../common/json.h"
#include "runs.h"
#include "system.h"

#define MOST_REPORTED 20 /* largest number of reported tasks that do not belong to the proxy */
#define STEAL_FIELD   8 /* position of the steal time in a line of /proc/stat; the CPU's name has position 1 */
#define LINE_BYTES    512
#define SAMPLES_MORE  1024 /* number of entries by which an array of samples grows */
#define DRAIN_MS      100  /* time between two reads of the ring buffer, unless --sample sets the time */

#define SOFTIRQS        (sizeof(softirq_names) / sizeof(*softirq_names))
#define PART_NAME(name) #name,
static const char *const part_names[] = { ACCOUNT_PARTS(PART_NAME) };
/* The softirqs in the order of include/linux/interrupt.h, as /proc/softirqs names them. */
static const char *const softirq_names[] = { "HI",       "TIMER",   "NET_TX", "NET_RX",  "BLOCK",
					     "IRQ_POLL", "TASKLET", "SCHED",  "HRTIMER", "RCU" };

struct settings {
	bool cpu[ACCOUNT_CPUS];
	int groups[ACCOUNT_GROUPS], own[ACCOUNT_OWN];
	int cpu_count, group_count, own_count, sample_ms;
	const char *report, *ready, *bursts;
};

struct seen {
	struct account_task task;
	__u64 key;
};

struct samples {
	__u64 *t_ns, *competed_ns;
	size_t count, room;
};

/*
 * The output file of --bursts, and the ring buffer from which sipaccount reads the bursts. A burst is a time during
 * which one task or softirq keeps a CPU. The two pointers are NULL without --bursts.
 */
struct burst_file {
	FILE *file;
	struct ring_buffer *ring;
	unsigned long long count;
};

/* Read how many ticks the hypervisor has taken from each CPU (stolen time). */
static void read_stolen(unsigned long long *ticks)
{
	FILE *file = fopen("/proc/stat", "re");
	char line[LINE_BYTES];

	while (file && fgets(line, sizeof(line), file)) {
		unsigned int number;
		char *rest;
		int field = 1;

		if (sscanf(line, "cpu%u ", &number) != 1 || number >= ACCOUNT_CPUS)
			continue;
		for (rest = strchr(line, ' '); rest && field < STEAL_FIELD; field++)
			rest = strchr(rest + 1, ' ');
		if (rest)
			ticks[number] = strtoull(rest, NULL, 10);
	}
	if (file)
		fclose(file);
}

/*
 * Return the CPU time in ns that competitors with a realtime or fair scheduling policy have used on the CPUs of --cpu.
 * The result includes the time of competitors that run now.
 */
static __u64 competed_ns(const struct settings *settings, const struct account_bpf *object, __u64 now)
{
	__u64 sum = 0;

	for (__u32 number = 0; number < ACCOUNT_CPUS; number++) {
		const volatile struct account_cpu *cpu = &object->bss->cpus[number];
		__u64 charged = cpu->charged_ns;
		bool runs = (cpu->part == PART_realtime || cpu->part == PART_fair) && !cpu->irqs &&
			    !cpu->softirqs;

		if (!settings->cpu[number])
			continue;
		sum += cpu->ns[PART_realtime] + cpu->ns[PART_fair];
		if (runs && now > charged)
			sum += now - charged;
	}
	return sum;
}

static bool add_sample(struct samples *samples, __u64 now, __u64 competed)
{
	if (samples->count == samples->room) {
		size_t room = samples->room + SAMPLES_MORE;
		__u64 *t_ns = realloc(samples->t_ns, room * sizeof(*t_ns)), *ns;

		samples->t_ns = t_ns ? t_ns : samples->t_ns;
		ns = t_ns ? realloc(samples->competed_ns, room * sizeof(*ns)) : NULL;
		if (!ns)
			return false;
		samples->competed_ns = ns;
		samples->room = room;
	}
	samples->t_ns[samples->count] = now;
	samples->competed_ns[samples->count++] = competed;
	return true;
}

static int write_burst(void *context, void *data, size_t size)
{
	struct burst_file *bursts = context;
	const struct account_kept *burst = data;
	bool is_softirq = burst->part == PART_softirq;
	char comm[ACCOUNT_COMM + 1] = { 0 };

	(void)size;
	memcpy(comm, burst->comm, ACCOUNT_COMM);
	if (is_softirq)
		snprintf(comm, sizeof(comm), "%s",
			 (size_t)burst->pid < SOFTIRQS ? softirq_names[burst->pid] : "?");
	fprintf(bursts->file, "%s\n[%u, %llu, %llu, \"%s\", ", bursts->count++ ? "," : "", burst->cpu,
		(unsigned long long)burst->from_ns, (unsigned long long)burst->to_ns,
		part_names[burst->part]);
	write_json_string(bursts->file, comm);
	fprintf(bursts->file, ", %d]", is_softirq ? 0 : burst->pid);
	return 0;
}

/* With --bursts, open the file of bursts and the ring buffer. Return 0, or an errno value. */
static int open_bursts(const struct settings *settings, const struct account_bpf *object,
		       struct burst_file *bursts)
{
	if (!settings->bursts)
		return 0;
	bursts->file = fopen(settings->bursts, "we");
	if (!bursts->file)
		return errno;
	fprintf(bursts->file, "{\"version\": 1, \"bursts\": [");
	bursts->ring = ring_buffer__new(bpf_map__fd(object->maps.kept), write_burst, bursts, NULL);
	return bursts->ring ? 0 : errno;
}

static void drain_bursts(struct burst_file *bursts)
{
	if (bursts->ring)
		ring_buffer__consume(bursts->ring);
}

/* Write the last bursts and close the file of bursts. Return 0, or an errno value. */
static int close_bursts(const struct account_bpf *object, struct burst_file *bursts)
{
	bool failed;

	drain_bursts(bursts);
	ring_buffer__free(bursts->ring);
	if (!bursts->file)
		return 0;
	fprintf(bursts->file, "\n], \"lost\": %llu}\n", (unsigned long long)object->bss->bursts_lost);
	failed = ferror(bursts->file);
	return fclose(bursts->file) || failed ? EIO : 0;
}

/* Take samples and write bursts until a signal arrives. Return 0, or an errno value. */
static int wait_and_sample(const struct settings *settings, const struct account_bpf *object,
			   const sigset_t *signals, struct samples *samples, struct burst_file *bursts)
{
	int period_ms = settings->sample_ms ? settings->sample_ms : DRAIN_MS;
	const struct timespec pause = { .tv_sec = period_ms / 1000, .tv_nsec = period_ms % 1000 * 1000000L };
	int signal;

	if (!settings->sample_ms && !settings->bursts)
		return sigwait(signals, &signal);
	do {
		__u64 now = clock_ns();

		drain_bursts(bursts);
		if (settings->sample_ms && !add_sample(samples, now, competed_ns(settings, object, now)))
			return ENOMEM;
	} while (sigtimedwait(signals, NULL, &pause) < 0);
	return 0;
}

/*
 * Run the BPF program `settle` on each CPU. The program begins or ends the counting of CPU time. Return 0, or an errno
 * value.
 */
static int settle_all(const struct settings *settings, struct account_bpf *object)
{
	for (__u32 cpu = 0; cpu < ACCOUNT_CPUS; cpu++) {
		LIBBPF_OPTS(bpf_test_run_opts, options, .cpu = cpu, .flags = BPF_F_TEST_RUN_ON_CPU);
		int error = settings->cpu[cpu]
				    ? bpf_prog_test_run_opts(bpf_program__fd(object->progs.settle), &options)
				    : 0;

		if (error)
			return -error;
	}
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct seen *a = left, *b = right;

	return a->task.ns < b->task.ns ? 1 : a->task.ns > b->task.ns ? -1 : 0;
}

/* Return all tasks that ran, sorted by CPU time from most to least. Return NULL if memory runs out. */
static struct seen *read_tasks(const struct account_bpf *object, size_t *count)
{
	int tasks = bpf_map__fd(object->maps.tasks);
	struct seen *seen = calloc(ACCOUNT_TASKS, sizeof(*seen));
	__u64 key, *before = NULL;

	*count = 0;
	while (seen && *count < ACCOUNT_TASKS && !bpf_map_get_next_key(tasks, before, &key)) {
		seen[*count].key = key;
		if (!bpf_map_lookup_elem(tasks, &key, &seen[*count].task))
			(*count)++;
		before = &key;
	}
	if (seen)
		qsort(seen, *count, sizeof(*seen), by_time);
	return seen;
}

static void write_cpu(FILE *file, __u32 number, const struct account_cpu *cpu, unsigned long long stolen)
{
	fprintf(file, "{\"cpu\": %u, \"total_ns\": %llu, \"stolen_ns\": %llu", number,
		(unsigned long long)(cpu->ended_ns - cpu->started_ns),
		stolen * (1000000000ULL / (unsigned long long)sysconf(_SC_CLK_TCK)));
	for (int part = 0; part < ACCOUNT_PART_COUNT; part++)
		fprintf(file, ", \"%s\": %llu", part_names[part], (unsigned long long)cpu->ns[part]);
	fprintf(file, "}");
}

static void write_task(FILE *file, const struct account_task *task)
{
	char comm[ACCOUNT_COMM + 1] = { 0 };

	memcpy(comm, task->comm, ACCOUNT_COMM);
	fprintf(file, "{\"comm\": ");
	write_json_string(file, comm);
	fprintf(file,
		", \"pid\": %d, \"tgid\": %d, \"part\": \"%s\", \"policy\": %u, \"nice\": %d, \"ns\": %llu, "
		"\"bursts\": %llu, \"longest_ns\": %llu, \"cpu\": %u}",
		task->pid, task->tgid, part_names[task->part], task->longest_policy, task->nice,
		(unsigned long long)task->ns, (unsigned long long)task->bursts,
		(unsigned long long)task->longest_ns, task->cpu);
}

static void write_tasks(FILE *file, const struct seen *seen, size_t count)
{
	const char *between = "";
	int others = 0;

	fprintf(file, "\"tasks\": [");
	for (size_t i = 0; i < count; i++) {
		if (!seen[i].task.bursts || (seen[i].task.part != PART_proxy && others++ >= MOST_REPORTED))
			continue;
		fprintf(file, "%s", between);
		write_task(file, &seen[i].task);
		between = ", ";
	}
	fprintf(file, "], ");
}

/*
 * Update the worst wait and the longest stop by the waits and stops that have not ended yet. In the worst wait,
 * competitors used the most CPU time. A stop is a time during which a signal, the freezer or a tracer stops a task of
 * the proxy.
 */
static void count_unfinished(struct account_bpf *object, const struct seen *seen, size_t count, __u64 now)
{
	struct account_wait *worst = &object->bss->worst_wait;
	struct account_stop *stop = &object->bss->worst_stop;

	for (size_t i = 0; i < count; i++) {
		const struct account_task *task = &seen[i].task;
		const struct account_cpu *cpu = &object->bss->cpus[task->wait_cpu % ACCOUNT_CPUS];
		__u64 competed = account_ns(task->competed, cpu->competed);

		if (task->part != PART_proxy)
			continue;
		if (task->stopped_ns && account_ns(task->stopped_ns, now) > stop->ns) {
			stop->ns = account_ns(task->stopped_ns, now);
			stop->pid = task->pid;
		}
		if (task->waiting_ns && cpu->started_ns && competed > worst->competed)
			*worst = (struct account_wait){ .ns = account_ns(task->waiting_ns, now),
							.competed = competed,
							.pid = task->pid,
							.cpu = task->wait_cpu };
	}
}

static void write_wait(FILE *file, const struct account_wait *wait, const struct seen *seen, size_t count)
{
	if (!wait->competed) {
		fprintf(file, "\"wait\": null, ");
		return;
	}
	fprintf(file, "\"wait\": {\"ns\": %llu, \"competed_ns\": %llu, \"pid\": %d, \"cpu\": %u, \"by\": ",
		(unsigned long long)wait->ns, (unsigned long long)wait->competed, wait->pid, wait->cpu);
	for (size_t i = 0; i < count; i++) {
		if (wait->by && seen[i].key == wait->by) {
			write_task(file, &seen[i].task);
			fprintf(file, "}, ");
			return;
		}
	}
	fprintf(file, "null}, ");
}

static void write_gaps(FILE *file, const struct account_bpf *object, __u64 now)
{
	const struct account_gap *gaps = object->bss->gaps;
	const char *between = "";

	fprintf(file, "\"gaps\": [");
	for (int i = 0; i < ACCOUNT_GAPS; i++) {
		if (!gaps[i].to_ns)
			continue;
		fprintf(file, "%s[%llu, %llu]", between, (unsigned long long)gaps[i].from_ns,
			(unsigned long long)gaps[i].to_ns);
		between = ", ";
	}
	if (!object->bss->proxy_running && object->bss->gap_since_ns)
		fprintf(file, "%s[%llu, %llu]", between, (unsigned long long)object->bss->gap_since_ns,
			(unsigned long long)now);
	fprintf(file, "], ");
}

static void write_numbers(FILE *file, const char *name, const __u64 *numbers, size_t count)
{
	fprintf(file, "\"%s\": [", name);
	for (size_t i = 0; i < count; i++)
		fprintf(file, "%s%llu", i ? ", " : "", (unsigned long long)numbers[i]);
	fprintf(file, "]");
}

static void write_samples(FILE *file, const struct samples *samples)
{
	fprintf(file, "\"samples\": {");
	write_numbers(file, "t_ns", samples->t_ns, samples->count);
	fprintf(file, ", ");
	write_numbers(file, "competed_ns", samples->competed_ns, samples->count);
	fprintf(file, "}, ");
}

static bool write_report(const struct settings *settings, struct account_bpf *object, __u64 now,
			 const unsigned long long *stolen, const struct samples *samples)
{
	FILE *file = fopen(settings->report, "we");
	size_t count = 0;
	struct seen *seen = read_tasks(object, &count);
	const char *between = "";

	if (file && seen) {
		count_unfinished(object, seen, count, now);
		fprintf(file, "{\"cpus\": [");
		for (__u32 cpu = 0; cpu < ACCOUNT_CPUS; cpu++) {
			if (!settings->cpu[cpu])
				continue;
			fprintf(file, "%s", between);
			write_cpu(file, cpu, &object->bss->cpus[cpu], stolen[cpu]);
			between = ", ";
		}
		fprintf(file, "], ");
		write_tasks(file, seen, count);
		write_wait(file, &object->bss->worst_wait, seen, count);
		write_gaps(file, object, now);
		fprintf(file,
			"\"stopped\": {\"ns\": %llu, \"pid\": %d, \"traced\": %u}, \"tasks_lost\": %llu, ",
			(unsigned long long)object->bss->worst_stop.ns, object->bss->worst_stop.pid,
			object->bss->worst_stop.traced, (unsigned long long)object->bss->tasks_lost);
		write_samples(file, samples);
		write_runs(file, object->obj);
		fprintf(file, "}\n");
	}
	free(seen);
	if (file && !fclose(file) && seen)
		return true;
	complain("cannot write %s: %s", settings->report, strerror(errno));
	return false;
}

/* Account for CPU time until a signal arrives, and write the report. Return false on failure. */
static bool count(const struct settings *settings, struct account_bpf *object, const sigset_t *signals)
{
	unsigned long long stolen[ACCOUNT_CPUS] = { 0 }, before[ACCOUNT_CPUS] = { 0 };
	struct samples samples = { 0 };
	struct burst_file bursts = { 0 };
	int unwritten = open_bursts(settings, object, &bursts), error = settle_all(settings, object);
	__u64 ended;
	bool good = false;

	read_stolen(before);
	if (!error && !unwritten && !write_ready(settings->ready))
		return false;
	if (!error && !unwritten)
		error = wait_and_sample(settings, object, signals, &samples, &bursts);
	object->bss->ending = true;
	error = error ? error : settle_all(settings, object);
	ended = clock_ns();
	read_stolen(stolen);
	account_bpf__detach(object);
	unwritten = unwritten ? unwritten : close_bursts(object, &bursts);
	for (int cpu = 0; cpu < ACCOUNT_CPUS; cpu++)
		stolen[cpu] = stolen[cpu] > before[cpu] ? stolen[cpu] - before[cpu] : 0;
	if (error)
		complain("cannot count on all CPUs: %s (are they online?)", strerror(error));
	else if (unwritten)
		complain("cannot write %s: %s", settings->bursts, strerror(unwritten));
	else
		good = write_report(settings, object, ended, stolen, &samples);
	free(samples.t_ns);
	free(samples.competed_ns);
	return good;
}

static bool read_options(int argc, char **argv, struct settings *settings)
{
	static const struct option options[] = {
		{ "cpu", required_argument, NULL, 'c' },    { "group", required_argument, NULL, 'g' },
		{ "own", required_argument, NULL, 'o' },    { "report", required_argument, NULL, 'r' },
		{ "ready", required_argument, NULL, 'y' },  { "sample", required_argument, NULL, 's' },
		{ "bursts", required_argument, NULL, 'b' }, { 0 },
	};
	long long number;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'c' && parse_whole(optarg, 0, ACCOUNT_CPUS - 1, &number)) {
			settings->cpu[number] = true;
			settings->cpu_count++;
		} else if (option == 'g' && settings->group_count < ACCOUNT_GROUPS &&
			   parse_whole(optarg, 1, INT32_MAX, &number)) {
			settings->groups[settings->group_count++] = (int)number;
		} else if (option == 'o' && settings->own_count < ACCOUNT_OWN &&
			   parse_whole(optarg, 1, INT32_MAX, &number)) {
			settings->own[settings->own_count++] = (int)number;
		} else if (option == 's' && parse_whole(optarg, 1, INT32_MAX, &number)) {
			settings->sample_ms = (int)number;
		} else if (option == 'b') {
			settings->bursts = optarg;
		} else if (option == 'r') {
			settings->report = optarg;
		} else if (option == 'y') {
			settings->ready = optarg;
		} else {
			return false;
		}
	}
	return optind == argc && settings->cpu_count && settings->report && settings->ready;
}

int main(int argc, char **argv)
{
	struct settings settings = { 0 };
	struct account_bpf *object;
	sigset_t signals = block_signals();
	int error;
	bool good;

	if (!read_options(argc, argv, &settings)) {
		complain("usage: sipaccount --cpu N [--cpu N ...] [--group PGID ...] [--own PID ...] "
			 "[--sample MS] [--bursts FILE] "
			 "--report FILE --ready FILE");
		return EXIT_USAGE;
	}
	libbpf_set_print(NULL);
	if (!is_in_initial_pid_namespace())
		return EXIT_BAD;
	object = account_bpf__open();
	if (!object) {
		complain("cannot open the BPF programs: %s", strerror(errno));
		return EXIT_BAD;
	}
	for (int i = 0; i < ACCOUNT_GROUPS; i++)
		object->rodata->cfg_groups[i] = settings.groups[i];
	for (int i = 0; i < ACCOUNT_OWN; i++)
		object->rodata->cfg_own[i] = settings.own[i];
	object->rodata->cfg_bursts = settings.bursts != NULL;
	bpf_program__set_autoattach(object->progs.settle, false);
	/* Without --bursts, nothing uses the ring buffer, so give it the smallest size: a page. */
	if (!settings.bursts)
		bpf_map__set_max_entries(object->maps.kept, (__u32)sysconf(_SC_PAGESIZE));
	error = -account_bpf__load(object);
	error = error ? error : -account_bpf__attach(object);
	if (error)
		complain("cannot load and attach the programs: %s (this needs BTF and CAP_BPF)",
			 strerror(error));
	good = !error && count(&settings, object, &signals);
	account_bpf__destroy(object);
	return good ? EXIT_GOOD : EXIT_BAD;
}
