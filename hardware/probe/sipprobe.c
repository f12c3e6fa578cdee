// SPDX-License-Identifier: MIT
/*
 * sipprobe: where the time of each SIP message goes in a proxy server, from the driver to the driver.
 *
 * USAGE
 *   sipprobe check [--port N]
 *   sipprobe run --port N --comm NAME --output TRACE --report JSON --ready FILE
 *                [--mode auto|exact|tracepoint] [--ring-bytes N] [--snippet-bytes N] [--verbose]
 *
 * WHAT IT SHOWS
 *   One record for each datagram that a worker thread received on the UDP port, one for each that the full
 *   socket queue refused (trace.h). `run` watches the network namespace it is started in, and there the
 *   threads of all processes called NAME; it looks for new ones each second.
 *   --ready FILE gets a line `ready <ns>` when everything is attached, and `fresh <ns>` after SIGUSR1, which
 *   discards what was measured so far. SIGTERM or SIGINT ends the run: the ring is drained, the report
 *   written.
 *   `check` tells which hooks this kernel offers, by loading and attaching each for a moment.
 *   Exit code: 0 good, 1 not (one line on stderr says why), 2 wrong usage.
 *
 * HOW TO READ IT
 *   K_rcv = t_sip_in - t_arr            K_stack = t_stack - t_arr
 *   K_sockq = t_sockq - t_stack         K_copy = t_sip_in - t_sockq
 *   T_sip = t_sip_out - t_sip_in - in_cost_ns
 *   K_snd = t_dep - t_sip_out - out_cost_ns
 *   The two costs are the probe's own work at the start of the interval.
 *   Mode `exact` measures all six stamps with fentry and fexit. Mode `tracepoint`, for kernels that refuse
 *   those, gives a lower bound of t_sockq. `auto` takes the better one that loads; the report says which.
 *   In the report, `lost` other than 0 means that the trace is incomplete; so do `threads_untraced` and,
 *   for the statistics of a kind, `unclassified`.
 *
 * OVERHEAD
 *   Tracepoint mode, stateful Kamailio, 1000 cps, 2 shared CPUs: 0.7 to 1.3 us of the proxy's CPU time a
 *   message, +3 to +6 % (medians over 12 neighbouring windows with and without, three sessions; comparing the
 *   medians of all windows gives +5 to +12 %, for the machine is noisy). Part of it is fixed: any system call
 *   tracepoint puts the calls of every task on the slow path. The writer takes 0.4 us a message at 20,000
 *   messages/s and 2 us at 1,000 (it polls and scans), on whatever CPU it runs: pin it away from the proxy.
 *   Exact mode: not measured.
 *
 * WHAT IT DOES NOT SEE
 *   IPv6, IP options, fragments; recvmmsg, sendmmsg, io_uring and MSG_PEEK; proxies that hand a message to
 *   another thread; messages a new thread receives before it is found.
 *   In tracepoint mode, a datagram whose first 256 bytes the driver left in page fragments is unmatched, and
 *   so is the fifth of identical ones that wait at the same time; before 6.10, of datagrams that the kernel
 *   delivers as a list, a drop has the arrival of the last or none.
 *   A port behind a bridge of the same namespace is counted twice as arrived. A Call-ID or CSeq past
 *   --snippet-bytes is not found: counted as `unclassified`.
 *
 * KERNELS
 *   5.10 and later with BTF. Tracepoint mode needs sk_data_ready (6.3) and, for a drop's Call-ID, 6.10.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "attach.h"
#include "check.h"
#include "json.h"
#include "options.h"
#include "records.h"
#include "system.h"
#include "workers.h"

#define POLL_NS 20000000L /* the ring holds far more than 20 ms of records */
#define SCAN_NS 1000000000ULL
#define START_SETTLE_NS \
	100000000L                  /* what was queued before all hooks were attached has been read by then \
				      */
#define SERVICE_SETTLE_NS 20000000L /* the last messages are sent on by then */
#define DETACH_SETTLE_NS  10000000L /* programs that still run when detached end within microseconds */
struct run {
	const struct options *options;
	struct probe probe;
	struct ring_buffer *ring;
	struct records records;
	struct workers workers;
	uint64_t cpu_at_fresh_ns;
	struct probe_counters at_fresh;
	struct probe_counters at_end;
	uint64_t misses_at_fresh;
};

/* ---- counters and report ---- */

static struct probe_counters sum_counters(const struct sipprobe *object)
{
	struct probe_counters sum = { 0 };

	for (size_t cpu = 0; cpu < PROBE_CPUS; cpu++) {
		const struct probe_counters *of_cpu = &object->bss->counters[cpu];

#define ADD(name) sum.name += of_cpu->name;
		PROBE_COUNTERS(ADD, PROBE_NO_COUNTER)
#undef ADD
	}
	return sum;
}

static struct probe_counters since_fresh(const struct run *run)
{
	const struct probe_counters *before = &run->at_fresh;
	struct probe_counters now = run->at_end;

#define SUBTRACT(name) now.name -= before->name;
	PROBE_COUNTERS(SUBTRACT, PROBE_NO_COUNTER)
#undef SUBTRACT
	return now;
}

/* Times a program was not run because it ran already on that CPU; the kernel tells since 5.12. */
static uint64_t recursion_misses(const struct sipprobe *object)
{
	struct bpf_program *program;
	uint64_t misses = 0;

	bpf_object__for_each_program(program, object->obj)
	{
		struct bpf_prog_info info = { 0 };
		__u32 size = sizeof(info);

		if (bpf_program__fd(program) >= 0 &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size))
			misses += info.recursion_misses;
	}
	return misses;
}

static void print_count(FILE *file, const char *name, uint64_t value)
{
	fprintf(file, "  \"%s\": %" PRIu64 ",\n", name, value);
}

/*
 * Arrivals that no worker received and no drop record names: where the kernel skipped the program of the refusal
 * (sipprobe.bpf.c, on_driver). Right once the queue is empty, as at the end of a run.
 */
static uint64_t count_refused_unseen(const struct probe_counters *counted)
{
	uint64_t known = counted->received - counted->unmatched + counted->refused;

	return counted->arrived > known ? counted->arrived - known : 0;
}

static void print_threads(FILE *file, const struct run *run)
{
	const char *separator = "";

	fputs("  \"threads\": [", file);
	for (size_t slot = 0; slot < run->workers.n_threads; slot++) {
		const struct thread *thread = &run->workers.threads[slot];

		fprintf(file, "%s\n    {\"tid\": %u, \"comm\": ", separator, thread->tid);
		print_json_string(file, thread->comm);
		fprintf(file, ", \"messages\": %" PRIu64 "}", run->records.messages[slot]);
		separator = ",";
	}
	fputs("\n  ],\n", file);
}

static void print_attached(FILE *file, const struct sipprobe *object)
{
	const char *separator = "";
	struct bpf_program *program;

	fputs("  \"hooks\": [", file);
	bpf_object__for_each_program(program, object->obj)
	{
		if (!bpf_program__autoload(program))
			continue;
		fputs(separator, file);
		print_json_string(file, bpf_program__section_name(program));
		separator = ", ";
	}
	fputs("]\n", file);
}

/* Those of the BPF programs, and those that the user side adds. */
static void print_counters(FILE *file, const struct probe_counters *counted, uint64_t lost_write)
{
	uint64_t refused_unseen = count_refused_unseen(counted);

#define PRINT_BPF(name)  print_count(file, #name, counted->name);
#define PRINT_USER(name) print_count(file, #name, name);
	PROBE_COUNTERS(PRINT_BPF, PRINT_USER)
#undef PRINT_BPF
#undef PRINT_USER
}

static void print_report(FILE *file, const struct run *run)
{
	struct probe_counters counted = since_fresh(run);
	uint64_t misses = recursion_misses(run->probe.object) - run->misses_at_fresh;

	fprintf(file, "{\n  \"version\": %d,\n  \"mode\": \"%s\",\n  \"mode_reason\": ", REPORT_VERSION,
		mode_name(run->probe.mode));
	print_json_string(file, run->probe.mode_reason);
	fputs(",\n", file);
	print_count(file, "records", run->records.trace.messages);
	print_count(file, "drops", run->records.trace.drops);
	print_counters(file, &counted, run->records.trace.lost);
	print_count(file, "unclassified", run->records.unclassified);
	print_count(file, "recursion_misses", misses);
	/* an entry evicted before its time turns up as unmatched: not counted again */
	print_count(file, "lost", counted.lost_ring + run->records.trace.lost + counted.unmatched + misses);
	print_threads(file, run);
	print_count(file, "threads_untraced", run->workers.untraced);
	print_count(file, "writer_cpu_ns", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - run->cpu_at_fresh_ns);
	print_count(file, "t_fresh_ns", run->records.t_fresh_ns);
	print_count(file, "t_end_ns", run->records.t_end_ns);
	print_attached(file, run->probe.object);
	fputs("}\n", file);
}

/* The report appears whole or not at all. */
static bool write_report(const struct run *run)
{
	char partial[PATH_MAX];
	bool written;
	FILE *file;

	snprintf(partial, sizeof(partial), "%s.tmp", run->options->report);
	file = fopen(partial, "we");
	if (file) {
		print_report(file, run);
		written = !fflush(file) && !ferror(file);
		written = !fclose(file) && written;
		if (written && !rename(partial, run->options->report))
			return true;
	}
	complain("cannot write the report %s: %s", run->options->report, strerror(errno));
	unlink(partial);
	return false;
}

/* ---- the life of a run ---- */

static bool say(const struct run *run, const char *word, uint64_t t_ns)
{
	FILE *file = fopen(run->options->ready, "ae");
	bool written = false;

	if (file) {
		written = fprintf(file, "%s %" PRIu64 "\n", word, t_ns) > 0;
		written = !fclose(file) && written;
	}
	if (!written)
		complain("cannot write %s: %s", run->options->ready, strerror(errno));
	return written;
}

/*
 * Count from here on. What is still in the ring or in service is recognised by its stamps and left out, so
 * nothing has to stop; with traffic running, a counter may be one or two messages off the records.
 */
static bool start_afresh(struct run *run)
{
	run->records.t_fresh_ns = clock_ns(CLOCK_MONOTONIC);
	run->at_fresh = sum_counters(run->probe.object);
	run->misses_at_fresh = recursion_misses(run->probe.object);
	run->cpu_at_fresh_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	run->records.unclassified = 0;
	run->workers.untraced = 0;
	memset(run->records.messages, 0, sizeof(run->records.messages));
	return start_trace(&run->records.trace, (enum trace_mode)run->probe.mode);
}

/*
 * The hooks do not let go all at once: what is received after t_end_ns is left out, records and counters
 * alike, and what was received before it is given time to be sent on.
 */
static void end_run(struct run *run)
{
	run->records.t_end_ns = clock_ns(CLOCK_MONOTONIC);
	run->at_end = sum_counters(run->probe.object);
	pause_ns(SERVICE_SETTLE_NS);
	sipprobe__detach(run->probe.object);
	pause_ns(DETACH_SETTLE_NS);
	ring_buffer__consume(run->ring);
	record_last_messages(&run->workers);
	run->at_end.lost_ring = sum_counters(run->probe.object).lost_ring;
	flush_trace(&run->records.trace);
}

/* Collect until a signal ends the run; false if it must end for another reason. */
static bool collect(struct run *run, const sigset_t *signals)
{
	struct timespec interval = { .tv_nsec = POLL_NS };
	uint64_t t_scan = clock_ns(CLOCK_MONOTONIC);

	for (;;) {
		int signal = sigtimedwait(signals, NULL, &interval);
		int consumed = ring_buffer__consume(run->ring);

		if (consumed < 0) {
			complain("cannot read the ring: %s", strerror(-consumed));
			return false;
		}
		if (signal == SIGTERM || signal == SIGINT)
			return true;
		if (signal == SIGUSR1 && (!start_afresh(run) || !say(run, "fresh", run->records.t_fresh_ns)))
			return false;
		if (clock_ns(CLOCK_MONOTONIC) - t_scan >= SCAN_NS) {
			t_scan += SCAN_NS;
			scan_workers(&run->workers);
			flush_trace(&run->records.trace);
		}
	}
}

static bool open_outputs(struct run *run)
{
	FILE *ready;

	if (!open_trace(&run->records.trace, run->options->output))
		return false;
	ready = fopen(run->options->ready, "we");
	if (!ready) {
		complain("cannot write %s: %s", run->options->ready, strerror(errno));
		return false;
	}
	fclose(ready);
	return true;
}

static int run_probe(const struct options *options)
{
	static struct run run;
	sigset_t signals;
	bool good;

	run.options = options;
	run.workers.comm = options->comm;
	run.workers.records = &run.records;
	run.records.t_end_ns = UINT64_MAX;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	if (!open_outputs(&run) || !load_probe(options, &run.probe))
		return EXIT_FAILURE;
	run.workers.object = run.probe.object;
	run.ring = ring_buffer__new(bpf_map__fd(run.probe.object->maps.ring), on_ring_record, &run.records,
				    NULL);
	if (!run.ring) {
		complain("cannot map the ring: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	scan_workers(&run.workers);
	pause_ns(START_SETTLE_NS);
	good = start_afresh(&run) && say(&run, "ready", run.records.t_fresh_ns) && collect(&run, &signals);
	end_run(&run);
	good = write_report(&run) && good && !run.records.trace.failed;
	if (!close_trace(&run.records.trace))
		good = false;
	ring_buffer__free(run.ring);
	sipprobe__destroy(run.probe.object);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct options options;

	if (argc < 2 || (strcmp(argv[1], "check") != 0 && strcmp(argv[1], "run") != 0))
		return usage();
	if (!parse_options(argc - 1, argv + 1, &options))
		return EXIT_USAGE;
	set_libbpf_messages(options.verbose);
	if (!strcmp(argv[1], "check"))
		return check(&options);
	if (!options.comm || !options.output || !options.report || !options.ready) {
		complain("run needs --comm, --output, --report and --ready");
		return EXIT_USAGE;
	}
	return run_probe(&options);
}
