// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/clock.h"
#include "../common/program.h"
#include "samples.h"

#define BUFFER_SIZE    (256 * 1024)
#define SNMP           "/proc/self/net/snmp"
#define NETSTAT        "/proc/self/net/netstat"
#define STAT           "/proc/stat"
#define SOFTNET        "/proc/self/net/softnet_stat"
#define SQUEEZE_COLUMN 2
/* The column with the CPU number. On old kernels without this column, the row number serves as the CPU number. */
#define CPU_COLUMN 12
/* The id of a process's CPU clock, as in MAKE_PROCESS_CPUCLOCK() of include/linux/posix-timers_types.h. */
#define PROCESS_CLOCK(p) ((clockid_t)(~(unsigned)(p) << 3 | 2))

/* Return the process id of a task (thread), or 0 if the task has ended. */
static pid_t process_of(pid_t task)
{
	char path[64], line[256];
	int process = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", task);
	file = fopen(path, "re");
	while (file && !process && fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %d", &process) != 1)
			process = 0;
	if (file)
		fclose(file);
	return process;
}

static void find_processes(struct sampler *sampler, const struct proxy_tasks *tasks)
{
	sampler->processes = keep(calloc((size_t)tasks->n + 1, sizeof(*sampler->processes)));
	for (unsigned i = 0; i < tasks->n; i++) {
		pid_t process = process_of(tasks->pids[i]);
		size_t known = 0;

		while (known < sampler->n_processes &&
		       sampler->processes[known].clock != PROCESS_CLOCK(process))
			known++;
		if (process && known == sampler->n_processes)
			sampler->processes[sampler->n_processes++] =
				(struct process_clock){ .clock = PROCESS_CLOCK(process),
							.instance = tasks->instances[i] };
	}
}

/* Return the CPU time of the proxy in ns. Add the CPU time of each instance to `instances_ns`. */
static uint64_t cpu_time_ns(struct sampler *sampler, uint64_t *instances_ns)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < sampler->n_processes; i++) {
		struct process_clock *process = &sampler->processes[i];
		uint64_t read = read_clock(process->clock);

		if (read > process->last_ns)
			process->last_ns = read;
		sum += process->last_ns;
		instances_ns[process->instance] += process->last_ns;
	}
	return sum;
}

/* Read a file from its start into the buffer, up to the buffer's size. Return the buffer. */
static const char *read_text(struct sampler *sampler, int fd)
{
	size_t used = 0;
	ssize_t n;

	do {
		n = pread(fd, sampler->buffer + used, BUFFER_SIZE - 1 - used, (off_t)used);
		used += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	sampler->buffer[used] = '\0';
	return sampler->buffer;
}

static const char *next_line(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

/*
 * Return the line of a text that has the names of the protocol's counters. The next line has the values of the
 * counters.
 */
static const char *counter_names(const struct sampler *sampler, const char *text)
{
	while (*text && strncmp(text, sampler->protocol, strlen(sampler->protocol)))
		text = next_line(text);
	return text;
}

static unsigned find_column(const char *names, const char *name)
{
	size_t length = strlen(name);
	unsigned column = 0;

	for (; *names && *names != '\n'; names += strcspn(names, " \n")) {
		names += strspn(names, " ");
		if (!strncmp(names, name, length) && strchr(" \n", names[length]))
			return column;
		column++;
	}
	return 0;
}

/* Return the number in a column of a line. The first column has the index 0. */
static uint64_t number_at(const char *line, unsigned column, int base)
{
	for (line += strspn(line, " "); column && *line && *line != '\n'; column--) {
		line += strcspn(line, " \n");
		line += strspn(line, " ");
	}
	return strtoull(line, NULL, base);
}

static unsigned columns(const char *line)
{
	unsigned n = 0;

	for (line += strspn(line, " "); *line && *line != '\n'; n++) {
		line += strcspn(line, " \n");
		line += strspn(line, " ");
	}
	return n;
}

static bool is_held(const struct sampler *sampler, uint64_t cpu)
{
	return !sampler->cpus.n || (cpu < CPUS_MAX && sampler->cpus.held[cpu]);
}

static void read_stat(struct sampler *sampler, struct sample *sample)
{
	/* Skip the first line, because this line has the sums over all CPUs of the host. */
	const char *line = next_line(read_text(sampler, sampler->stat));

	for (; !strncmp(line, "cpu", 3); line = next_line(line)) {
		if (!is_held(sampler, strtoull(line + 3, NULL, 10)))
			continue;
		/* the columns are: cpuN user nice system idle iowait irq softirq steal */
		sample->idle_ticks += number_at(line, 4, 10) + number_at(line, 5, 10);
		sample->softirq_ticks += number_at(line, 7, 10);
		sample->steal_ticks += number_at(line, 8, 10);
	}
}

static void read_softnet(struct sampler *sampler, struct sample *sample)
{
	const char *line = read_text(sampler, sampler->softnet);

	for (unsigned row = 0; *line; line = next_line(line), row++)
		if (is_held(sampler, columns(line) > CPU_COLUMN ? number_at(line, CPU_COLUMN, 16) : row))
			sample->time_squeeze += number_at(line, SQUEEZE_COLUMN, 16);
}

static void read_counters(struct sampler *sampler, struct sample *sample)
{
	const char *values = next_line(counter_names(sampler, read_text(sampler, sampler->counters)));

	sample->datagrams = number_at(values, sampler->datagrams_column, 10);
	if (sampler->refused_column)
		sample->refused = number_at(values, sampler->refused_column, 10);
}

void sampler_take(struct sampler *sampler)
{
	struct sample *sample = &sampler->samples[sampler->n];
	uint64_t *instances_ns = &sampler->instances_ns[sampler->n * sampler->n_instances];

	if (sampler->n == sampler->room)
		return;
	*sample = (struct sample){ .t_ns = clock_ns() };
	memset(instances_ns, 0, sampler->n_instances * sizeof(*instances_ns));
	sample->cpu_ns = cpu_time_ns(sampler, instances_ns);
	read_counters(sampler, sample);
	read_stat(sampler, sample);
	read_softnet(sampler, sample);
	sampler->n++;
}

const char *sampler_open(struct sampler *sampler, const struct proxy_tasks *tasks, const struct cpu_set *cpus,
			 bool tcp, size_t room)
{
	const char *file = tcp ? NETSTAT : SNMP, *names;
	size_t n_times = (room + 1) * tasks->n_instances;

	*sampler = (struct sampler){ .cpus = *cpus, .room = room, .n_instances = tasks->n_instances };
	sampler->buffer = keep(malloc(BUFFER_SIZE));
	sampler->samples = keep(calloc(room + 1, sizeof(*sampler->samples)));
	sampler->instances_ns = keep(calloc(n_times, sizeof(*sampler->instances_ns)));
	/* Write to all pages now, because a page fault during the run would delay a switch to another mode. */
	memset(sampler->samples, 1, (room + 1) * sizeof(*sampler->samples));
	memset(sampler->instances_ns, 1, n_times * sizeof(*sampler->instances_ns));
	find_processes(sampler, tasks);
	sampler->protocol = tcp ? "TcpExt: " : "Udp: ";
	sampler->counters = open(file, O_RDONLY | O_CLOEXEC);
	sampler->stat = open(STAT, O_RDONLY | O_CLOEXEC);
	sampler->softnet = open(SOFTNET, O_RDONLY | O_CLOEXEC);
	if (sampler->stat < 0)
		return STAT;
	if (sampler->softnet < 0)
		return SOFTNET;
	names = counter_names(sampler, read_text(sampler, sampler->counters));
	sampler->datagrams_column = find_column(names, tcp ? "TCPOrigDataSent" : "InDatagrams");
	sampler->refused_column = tcp ? 0 : find_column(names, "RcvbufErrors");
	return sampler->counters >= 0 && sampler->datagrams_column && (tcp || sampler->refused_column) ? NULL
												       : file;
}

void sampler_close(struct sampler *sampler)
{
	close(sampler->counters);
	close(sampler->stat);
	close(sampler->softnet);
	free(sampler->processes);
	free(sampler->samples);
	free(sampler->instances_ns);
	free(sampler->buffer);
}
