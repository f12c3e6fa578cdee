// SPDX-License-Identifier: MIT
/*
 * sipshard assigns calls to the UDP sockets that share a port. The programs that own the sockets need no change.
 *
 * USAGE
 *   sipshard --port P --sockets N [--key call-id|user|domain] --report FILE --ready FILE PID...
 *
 * WHAT IT DOES
 *   sipshard finds the N sockets that the processes have bound to UDP port P with SO_REUSEPORT (pidfd_getfd). sipshard
 *   attaches the BPF program of shard.bpf.c, and then creates the file of --ready. The BPF program chooses a socket by the
 *   Call-ID (the default), or by the user or the domain of the URI in the To header.
 *   At SIGTERM or SIGINT, sipshard writes a report, one JSON object:
 *     selected          datagrams per socket, in the order of the processes
 *     without_call_id   datagrams without the key, which went to socket 0
 *     gone              datagrams that the BPF program dropped because the socket of their key was closed
 *     runs, run_ns      number and total time of the BPF program's runs, if the kernel counts them
 *                       (kernel.bpf_stats_enabled)
 * sipshard pins no BPF object. The BPF program stays attached as long as the sockets exist, even if sipshard is killed.
 *   The exit code is 0 on success, 1 with one line on stderr for an error, and 2 for wrong usage.
 *
 * sipshard needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_PTRACE, and Linux 5.17 or later.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "../common/arguments.h"
#include "../common/program.h"
#include "../common/sockets.h"
#include "shard.h"
#include "shard.skel.h"

struct shards {
	unsigned port;
	unsigned wanted;
	enum shard_key key;
	unsigned n_sockets;
	int denied; /* errno of the last failed attempt to copy the sockets of a process; 0: none failed */
	int sockets[SHARDS_MAX];
	uint64_t cookies[SHARDS_MAX];
};

static _Noreturn void usage(void)
{
	complain("usage: sipshard --port P --sockets N (1 to %d) [--key call-id|user|domain] --report FILE "
		 "--ready FILE PID...",
		 SHARDS_MAX);
	exit(EXIT_USAGE);
}

static bool parse_key(const char *name, enum shard_key *key)
{
	static const char *const names[] = {
		[SHARD_BY_CALL_ID] = "call-id",
		[SHARD_BY_USER] = "user",
		[SHARD_BY_DOMAIN] = "domain",
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i]) == 0) {
			*key = i;
			return true;
		}
	}
	return false;
}

/*
 * Add a copied socket to the list if it shares the UDP port (SO_REUSEPORT) and the list does not contain it yet.
 * In all other cases, close the copy.
 */
static void keep_socket(void *context, int socket)
{
	struct shards *shards = context;
	uint64_t cookie = socket_cookie(socket);
	int shared = 0;
	socklen_t size = sizeof(shared);
	bool known = false;

	getsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &shared, &size);
	for (unsigned i = 0; i < shards->n_sockets && i < SHARDS_MAX; i++)
		known = known || shards->cookies[i] == cookie;
	if (!is_udp_port(socket, shards->port) || !shared || known) {
		close(socket);
		return;
	}
	if (shards->n_sockets < SHARDS_MAX) {
		shards->cookies[shards->n_sockets] = cookie;
		shards->sockets[shards->n_sockets] = socket;
	} else {
		close(socket);
	}
	shards->n_sockets++;
}

static int attach(const struct shards *shards, struct shard_bpf *object)
{
	int program = bpf_program__fd(object->progs.sipshard);

	for (__u32 i = 0; i < shards->n_sockets; i++) {
		__u64 socket = (__u64)shards->sockets[i];

		if (bpf_map__update_elem(object->maps.sockets, &i, sizeof(i), &socket, sizeof(socket),
					 BPF_ANY))
			return fail("cannot enter a socket into the BPF map", strerror(errno));
	}
	if (setsockopt(shards->sockets[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)))
		return fail("cannot attach the program", strerror(errno));
	return 0;
}

static int write_report(const char *path, const struct shards *shards, const struct shard_bpf *object)
{
	int cpus = libbpf_num_possible_cpus();
	struct shard_counts sum = { 0 }, *counts = cpus > 0 ? calloc((size_t)cpus, sizeof(*counts)) : NULL;
	struct bpf_prog_info info = { 0 };
	__u32 zero = 0, size = sizeof(info);
	FILE *file = fopen(path, "w");

	if (!file || !counts) {
		free(counts);
		return fail(path, strerror(file ? ENOMEM : errno));
	}
	bpf_map__lookup_elem(object->maps.counts, &zero, sizeof(zero), counts, (size_t)cpus * sizeof(*counts),
			     0);
	for (int cpu = 0; cpu < cpus; cpu++) {
		for (unsigned i = 0; i < SHARDS_MAX; i++)
			sum.selected[i] += counts[cpu].selected[i];
		sum.without_key += counts[cpu].without_key;
		sum.gone += counts[cpu].gone;
	}
	free(counts);
	bpf_obj_get_info_by_fd(bpf_program__fd(object->progs.sipshard), &info, &size);
	fprintf(file, "{\"selected\": [");
	for (unsigned i = 0; i < shards->n_sockets; i++)
		fprintf(file, "%s%llu", i ? ", " : "", (unsigned long long)sum.selected[i]);
	fprintf(file, "], \"without_call_id\": %llu, \"gone\": %llu, \"runs\": %llu, \"run_ns\": %llu}\n",
		(unsigned long long)sum.without_key, (unsigned long long)sum.gone,
		(unsigned long long)info.run_cnt, (unsigned long long)info.run_time_ns);
	return fclose(file) ? fail(path, strerror(errno)) : 0;
}

static int run(struct shards *shards, const char *report, const char *ready)
{
	struct shard_bpf *object = shard_bpf__open();
	sigset_t none;
	int result;

	if (!object)
		return fail("cannot open the BPF program", strerror(errno));
	object->rodata->n_sockets = shards->n_sockets;
	object->rodata->key = shards->key;
	if (shard_bpf__load(object)) {
		result = fail(
			"cannot load the program; it needs Linux 5.17 (sk_reuseport, bpf_loop) and CAP_BPF",
			strerror(errno));
		shard_bpf__destroy(object);
		return result;
	}
	result = attach(shards, object);
	/* close the copies of the sockets, so that only the proxy holds them and can close them */
	for (unsigned i = 0; i < shards->n_sockets; i++)
		close(shards->sockets[i]);
	if (!result)
		result = write_ready(ready) ? EXIT_GOOD : EXIT_BAD;
	sigemptyset(&none);
	while (!result && !stop_asked)
		sigsuspend(&none);
	if (!result)
		result = write_report(report, shards, object);
	shard_bpf__destroy(object);
	return result;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "port", required_argument, NULL, 'p' },  { "sockets", required_argument, NULL, 'n' },
		{ "key", required_argument, NULL, 'k' },   { "report", required_argument, NULL, 'r' },
		{ "ready", required_argument, NULL, 'y' }, { 0 },
	};
	const char *report = NULL, *ready = NULL;
	struct shards shards = { 0 };
	long long number;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'p' && parse_whole(optarg, 1, 65535, &number))
			shards.port = (unsigned)number;
		else if (option == 'n' && parse_whole(optarg, 1, SHARDS_MAX, &number))
			shards.wanted = (unsigned)number;
		else if (option == 'k' && parse_key(optarg, &shards.key))
			continue;
		else if (option == 'r')
			report = optarg;
		else if (option == 'y')
			ready = optarg;
		else
			usage();
	}
	if (!shards.port || !shards.wanted || !report || !ready || optind == argc)
		usage();
	for (int i = optind; i < argc; i++)
		if (!parse_whole(argv[i], 1, INT32_MAX, &number))
			usage();
	block_signals();
	catch_signals();
	libbpf_set_print(NULL);
	for (int i = optind; i < argc; i++) {
		int denied = copy_sockets((pid_t)strtol(argv[i], NULL, 10), keep_socket, &shards);

		shards.denied = denied ? denied : shards.denied;
	}
	if (shards.n_sockets < shards.wanted && shards.denied)
		return fail("cannot take the sockets of a process", strerror(shards.denied));
	if (shards.n_sockets != shards.wanted) {
		complain("%u sockets share UDP port %u, expected %u", shards.n_sockets, shards.port,
			 shards.wanted);
		return 1;
	}
	return run(&shards, report, ready);
}
