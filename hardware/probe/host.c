// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/arguments.h"
#include "host.h"
#include "options.h"
#include "system.h"

#define LINE        4096
#define PROCESSES   1024
#define ESTABLISHED 1 /* TCP_ESTABLISHED of include/net/tcp_states.h */

/* Mount points of the control groups with CPU limits (cgroups(7)): version 2, and the controller cpu of version 1. */
#define GROUPS    "/sys/fs/cgroup"
#define GROUPS_V1 "/sys/fs/cgroup/cpu"

/* The proxy's processes, which are called `name` and use the network namespace `namespace`. */
struct processes {
	const char *name;
	uint32_t namespace;
	long pids[PROCESSES];
	size_t n;
};

typedef void print_line(const char *line, const char *prefix);

static void print_whole(const char *line, const char *prefix)
{
	printf("%s%s", prefix, line);
}

static void print_number_rows(const char *line, const char *prefix)
{
	/* Skip the first row of a table in /proc/net, which holds the names of the columns. */
	if (strchr(line, ':') && !strstr(line, "local_address"))
		printf("%s%s", prefix, line);
}

static void print_cpu(const char *line, const char *prefix)
{
	/* Skip the row `cpu` with the sums over all CPUs, because the proxy may be limited to some CPUs. */
	if (!strncmp(line, "cpu", 3) && isdigit((unsigned char)line[3]))
		print_whole(line, prefix);
}

static void print_allowed(const char *line, const char *prefix)
{
	static const char key[] = "Cpus_allowed_list:";

	if (!strncmp(line, key, sizeof(key) - 1))
		printf("%s%s", prefix, line + sizeof(key));
}

static void print_udp(const char *line, const char *prefix)
{
	if (!strncmp(line, "Udp: ", 5) && isdigit((unsigned char)line[5]))
		printf("%s%s", prefix, line + 5);
}

static void print_udp6(const char *line, const char *prefix)
{
	if (!strncmp(line, "Udp6", 4))
		printf("%s%s", prefix, line + 4);
}

static void print_throttled(const char *line, const char *prefix)
{
	if (strstr(line, "throttled"))
		print_whole(line, prefix);
}

/* Pass each line of a file to `print`. Ignore a file that cannot be read, because its process may have ended. */
static void print_file(const char *path, print_line print, const char *prefix)
{
	FILE *file = fopen(path, "re");
	char line[LINE];

	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		print(line, prefix);
	fclose(file);
}

/* Read the first line of a file in /proc. Return false if the file cannot be read. */
static bool read_small(char *content, size_t size, const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return read_line(path, content, size);
}

static void look_at_process(struct processes *processes, const char *pid)
{
	char folder[64], stat[LINE], path[PATH_MAX];
	const char *begin, *end;

	snprintf(folder, sizeof(folder), "/proc/%.20s", pid);
	if (!read_small(stat, sizeof(stat), folder, "stat"))
		return;
	printf("stat %s\n", stat);
	begin = strchr(stat, '(');
	end = strrchr(stat, ')');
	if (!begin || !end || (size_t)(end - begin - 1) != strlen(processes->name) ||
	    strncmp(begin + 1, processes->name, strlen(processes->name)) != 0)
		return;
	snprintf(path, sizeof(path), "%s/ns/net", folder);
	if (namespace_of(path) == processes->namespace && processes->n < PROCESSES)
		processes->pids[processes->n++] = atol(pid);
}

/* Print the CPU time of every process, and find the processes of the proxy. */
static void look_at_processes(struct processes *processes)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;

	processes->n = 0;
	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		if (isdigit((unsigned char)entry->d_name[0]))
			look_at_process(processes, entry->d_name);
	}
	closedir(folder);
	printf("pids");
	for (size_t i = 0; i < processes->n; i++)
		printf(" %ld", processes->pids[i]);
	printf("\n");
}

/*
 * Print, per task of a process, the time on a CPU, the time of waiting for a CPU, and the CPUs on which the task may
 * run.
 */
static void print_tasks(long pid)
{
	char folder[64], task[128], status[PATH_MAX], prefix[32], times[LINE];
	struct dirent *entry;
	DIR *tasks;

	snprintf(folder, sizeof(folder), "/proc/%ld/task", pid);
	tasks = opendir(folder);
	if (!tasks)
		return;
	while ((entry = readdir(tasks))) {
		snprintf(task, sizeof(task), "%s/%.20s", folder, entry->d_name);
		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    !read_small(times, sizeof(times), task, "schedstat"))
			continue;
		printf("ran %s %s\n", entry->d_name, times);
		snprintf(status, sizeof(status), "%s/status", task);
		snprintf(prefix, sizeof(prefix), "allowed %.20s ", entry->d_name);
		print_file(status, print_allowed, prefix);
	}
	closedir(tasks);
}

/* Print how often and how long the kernel stopped a control group, and each of its parent groups, at a CPU limit. */
static void print_group(const char *mount, char *group)
{
	char path[LINE + 64];
	char *slash;

	/* Each step removes the last part of the group's path: "/a/b", "/a", and "" for the root group. */
	do {
		slash = strrchr(group, '/');
		if (!slash || slash[1]) {
			snprintf(path, sizeof(path), "%s%s/cpu.stat", mount, group);
			print_file(path, print_throttled, "limit ");
		}
		if (slash)
			*slash = 0;
	} while (slash);
}

/* Print how often and how long the control groups of a process were throttled, for groups that can have a CPU limit. */
static void print_limits(long pid)
{
	char path[64], line[LINE];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/cgroup", pid);
	file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		/* A line is "ID:CONTROLLERS:GROUP". In version 2, the list of controllers is empty. */
		const char *mount = NULL, *controller;
		char *rest = line, *controllers, *group;

		strsep(&rest, ":");
		controllers = strsep(&rest, ":");
		group = strsep(&rest, "\n");
		while ((controller = strsep(&controllers, ","))) {
			if (!*controller)
				mount = GROUPS;
			else if (!strcmp(controller, "cpu"))
				mount = GROUPS_V1;
		}
		if (mount && group)
			print_group(mount, group);
	}
	fclose(file);
}

/* Return the number of open TCP connections from or to a port. */
static unsigned long count_connections(long pid, const char *table, unsigned long port)
{
	unsigned long count = 0;
	unsigned local, remote, state;
	char path[PATH_MAX], line[LINE];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/net/%s", pid, table);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %*u: %*[0-9A-F]:%x %*[0-9A-F]:%x %x", &local, &remote, &state) == 3 &&
		    state == ESTABLISHED && (local == port || remote == port))
			count++;
	}
	fclose(file);
	return count;
}

/* Print the sockets and the counters of the network namespace of a process. */
static void print_network(long pid, unsigned long tcp_port)
{
	static const char *const tables[] = { "udp", "udp6" };
	char path[PATH_MAX], prefix[32];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%ld/net/%s", pid, tables[i]);
		snprintf(prefix, sizeof(prefix), "table %s ", tables[i]);
		print_file(path, print_number_rows, prefix);
	}
	snprintf(path, sizeof(path), "/proc/%ld/net/snmp", pid);
	print_file(path, print_udp, "snmp ");
	snprintf(path, sizeof(path), "/proc/%ld/net/snmp6", pid);
	print_file(path, print_udp6, "snmp6 ");
	if (tcp_port)
		printf("connections %lu\n",
		       count_connections(pid, "tcp", tcp_port) + count_connections(pid, "tcp6", tcp_port));
}

int print_counters(int count, char **arguments)
{
	static struct processes processes;
	long long namespace, port = 0;
	int byte;

	if (count < 2 || count > 3 || !parse_whole(arguments[1], 1, UINT32_MAX, &namespace) ||
	    (count == 3 && !parse_whole(arguments[2], 1, UINT16_MAX, &port)))
		return usage();
	processes.name = arguments[0];
	processes.namespace = (uint32_t) namespace;
	expect_input();
	while ((byte = getchar()) != EOF) {
		if (byte != '\n')
			continue;
		expect_input();
		print_file("/proc/uptime", print_whole, "uptime ");
		look_at_processes(&processes);
		print_file("/proc/stat", print_cpu, "");
		print_file("/proc/net/softnet_stat", print_whole, "softnet ");
		for (size_t i = 0; i < processes.n; i++)
			print_tasks(processes.pids[i]);
		if (processes.n) {
			print_limits(processes.pids[0]);
			print_network(processes.pids[0], (unsigned long)port);
		}
		printf("end\n");
		if (fflush(stdout))
			return EXIT_BAD; /* the program that reads the output has closed the pipe */
	}
	return EXIT_GOOD;
}
