// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <bpf/libbpf.h>
#include "attach.h"
#include "control.h"
#include "counters.h"
#include "recording.h"
#include "records.h"
#include "report.h"
#include "run.h"
#include "streams.h"
#include "system.h"
#include "workers.h"

#define POLL_MS 20 /* time between two reads of the ring buffer; too short for the ring buffer to fill up */
#define SCAN_NS 1000000000ULL
/* ASSUME within this time, workers read all datagrams that were queued before all hooks were attached. */
#define START_SETTLE_NS   100000000L
#define SERVICE_SETTLE_NS 20000000L /* within this time, workers forward every message they have received */
#define DETACH_SETTLE_NS  10000000L /* BPF programs that run during detaching end within this time */

struct run {
	const struct options *options;
	struct probe probe;
	struct ring_buffer *ring;
	struct records records;
	struct workers workers;
	struct recording recording;
	struct streams streams; /* used in mode STREAM only */
	struct control control;
	int signals; /* a signalfd that receives SIGINT, SIGTERM and SIGUSR1 */
	uint64_t t_scan_ns;
	uint64_t cpu_at_fresh_ns;
	struct probe_counters at_fresh;
	struct probe_counters at_end;
	uint64_t misses_at_fresh;
};

static bool announce(const struct run *run, const char *word, uint64_t t_ns)
{
	FILE *file;
	bool written = false;

	if (run->options->watch) /* `watch` has no ready file; its trace begins with a header instead */
		return true;
	file = fopen(run->options->ready, "ae");
	if (file) {
		written = fprintf(file, "%s %" PRIu64 "\n", word, t_ns) > 0;
		written = !fclose(file) && written;
	}
	if (!written)
		complain("cannot write %s: %s", run->options->ready, strerror(errno));
	return written;
}

/*
 * Start counting now. The ring and the workers may still have older messages. The probe excludes older messages by
 * their timestamps, so neither the proxy nor the probe has to stop. If messages arrive at this moment, a counter may
 * differ from the number of records by one or two messages.
 */
static bool start_afresh(struct run *run)
{
	run->workers.untraced = 0;
	scan_workers(&run->workers);
	run->records.t_fresh_ns = clock_ns();
	run->at_fresh = sum_counters(run->probe.object);
	run->misses_at_fresh = recursion_misses(run->probe.object);
	run->cpu_at_fresh_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	run->records.unclassified = 0;
	memset(run->records.messages, 0, sizeof(run->records.messages));
	recording_afresh(&run->recording, run->records.t_fresh_ns);
	streams_afresh(&run->streams);
	return start_trace(&run->records.trace, (enum trace_mode)run->probe.mode);
}

/*
 * End the run. Detaching the hooks takes time, and the last hooks would still record a part of the events of a message.
 * Records and counters therefore exclude messages that a worker received after t_end_ns. Before detaching, the function
 * waits until the workers have sent on the messages that they received earlier.
 */
static void end_run(struct run *run)
{
	run->records.t_end_ns = clock_ns();
	run->at_end = sum_counters(run->probe.object);
	end_recording(&run->recording, run->records.t_end_ns);
	pause_ns(SERVICE_SETTLE_NS);
	detach_probe(&run->probe);
	pause_ns(DETACH_SETTLE_NS);
	ring_buffer__consume(run->ring);
	record_last_messages(&run->workers);
	end_streams(&run->streams);
	run->at_end.lost_ring = sum_counters(run->probe.object).lost_ring;
	flush_trace(&run->records.trace);
}

static void on_command(void *context, const char *command, char *answer)
{
	struct run *run = context;
	int error;

	strcpy(answer, "ok");
	if (!strcmp(command, "off")) {
		switch_off(&run->recording);
	} else if (!strcmp(command, "on")) {
		error = switch_on(&run->recording);
		if (error)
			snprintf(answer, CONTROL_ANSWER, "error: cannot attach: %s", strerror(error));
		run->t_scan_ns = clock_ns();
	} else {
		snprintf(answer, CONTROL_ANSWER, "error: expected off or on, found \"%s\"", command);
	}
}

/* Execute the commands that `watch` has received on stdin. Return false at the end of the input. */
static bool read_switches(struct run *run)
{
	char commands[16];
	ssize_t size = read(STDIN_FILENO, commands, sizeof(commands));

	if (size > 0)
		expect_input();
	for (ssize_t i = 0; i < size; i++) {
		if (commands[i] == '0') {
			switch_off(&run->recording);
			flush_trace(&run->records.trace);
		} else if (commands[i] == '1' && switch_on(&run->recording)) {
			return false;
		}
	}
	return size > 0 || (size < 0 && errno == EINTR);
}

/* Wait for a signal, a command, or the next time to read the ring. Return the signal's number, or 0 without a signal. */
static uint32_t wait_for_work(struct run *run)
{
	struct pollfd fds[2 + CONTROL_FDS] = { { .fd = run->signals, .events = POLLIN },
					       { .fd = run->options->watch ? STDIN_FILENO : -1,
						 .events = POLLIN } };
	struct signalfd_siginfo signal = { 0 };

	list_control(&run->control, fds + 2);
	/* While recording is off, the ring gets no events, so wait without a limit, to use no CPU time. */
	if (poll(fds, 2 + CONTROL_FDS, run->recording.on ? POLL_MS : -1) <= 0)
		return 0;
	serve_control(&run->control, fds + 2, on_command, run);
	if (fds[1].revents && !read_switches(run))
		return SIGTERM;
	if (!fds[0].revents || read(run->signals, &signal, sizeof(signal)) < 0)
		return 0;
	return signal.ssi_signo;
}

/* For `watch`, write the counters since the start to stderr, as one line of JSON. */
static void report_second(const struct run *run)
{
	const struct probe_counters now = sum_counters(run->probe.object);
	const struct probe_counters counted = counters_between(&run->at_fresh, &now);
	uint64_t unmatched =
		run->probe.mode == MODE_STREAM ? run->streams.counts.unmatched : counted.unmatched;

	if (!run->options->watch)
		return;
	fprintf(stderr,
		"{\"lost\": %" PRIu64 ", \"unmatched\": %" PRIu64 ", \"threads_untraced\": %" PRIu64
		", \"left_out\": %" PRIu64 ", \"writer_cpu_ns\": %" PRIu64 ", \"mode\": \"%s\"}\n",
		(uint64_t)counted.lost_ring + run->records.trace.lost + run->streams.counts.broken, unmatched,
		run->workers.untraced, run->records.left_out,
		read_clock(CLOCK_PROCESS_CPUTIME_ID) - run->cpu_at_fresh_ns, mode_name(run->probe.mode));
}

/* Collect events until a signal ends the run. Return false if an error ends the run. */
static bool collect(struct run *run)
{
	run->t_scan_ns = clock_ns();
	for (;;) {
		uint32_t signal = wait_for_work(run);
		int consumed = ring_buffer__consume(run->ring);

		settle_streams(&run->streams);

		if (consumed < 0) {
			complain("cannot read the ring buffer: %s", strerror(-consumed));
			return false;
		}
		if (signal == SIGTERM || signal == SIGINT)
			return true;
		if (signal == SIGUSR1 &&
		    (!start_afresh(run) || !announce(run, "fresh", run->records.t_fresh_ns)))
			return false;
		if (run->recording.on && clock_ns() - run->t_scan_ns >= SCAN_NS) {
			run->t_scan_ns += SCAN_NS;
			scan_workers(&run->workers);
			flush_trace(&run->records.trace);
			report_second(run);
			if (run->options->watch && run->records.trace.failed)
				return false; /* the reader of the trace has closed the pipe */
		}
	}
}

static bool open_outputs(struct run *run)
{
	FILE *ready;

	if (!open_trace(&run->records.trace, run->options->output))
		return false;
	if (run->options->watch)
		return true;
	ready = fopen(run->options->ready, "we");
	if (!ready) {
		complain("cannot write %s: %s", run->options->ready, strerror(errno));
		return false;
	}
	fclose(ready);
	return true;
}

static bool report_run(const struct run *run)
{
	const struct report report = {
		.probe = &run->probe,
		.records = &run->records,
		.workers = &run->workers,
		.recording = &run->recording,
		.streams = &run->streams,
		.counted = counters_between(&run->at_fresh, &run->at_end),
		.recursion_misses = recursion_misses(run->probe.object) - run->misses_at_fresh,
		.cpu_at_fresh_ns = run->cpu_at_fresh_ns,
	};

	return write_report(run->options->report, &report);
}

/* Record from now until a signal ends the run, and write the last records. Return false if an error ends the run. */
static bool trace_until_stopped(struct run *run)
{
	bool good;

	scan_workers(&run->workers);
	begin_recording(&run->recording);
	pause_ns(START_SETTLE_NS);
	good = start_afresh(run) && announce(run, "ready", run->records.t_fresh_ns) && collect(run);
	end_run(run);
	return good;
}

int run_probe(const struct options *options)
{
	static struct sip_key
		key; /* never stored: nobody can hash a guessed Call-ID and look for the hash in the trace */
	static struct run run;
	sigset_t signals = block_signals();
	bool streaming;
	bool good;

	run.options = options;
	run.workers.comm = options->comm;
	run.workers.namespace = proxy_namespace(options);
	run.records.one_in = options->one_in;
	if (!run.workers.namespace) {
		complain("cannot read the network namespace %s: %s", options->netns, strerror(errno));
		return EXIT_FAILURE;
	}
	if (options->watch) {
		if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key)) {
			complain("cannot get a random key: %s", strerror(errno));
			return EXIT_FAILURE;
		}
		run.records.key = &key;
		expect_input();
	}
	run.workers.records = &run.records;
	run.records.t_end_ns = UINT64_MAX;
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	run.signals = signalfd(-1, &signals, SFD_CLOEXEC);
	if (!open_outputs(&run) || !load_probe(options, &run.probe))
		return EXIT_FAILURE;
	run.workers.object = run.probe.object;
	streaming = run.probe.mode == MODE_STREAM;
	run.streams.records = &run.records;
	run.ring = ring_buffer__new(bpf_map__fd(run.probe.object->maps.ring),
				    streaming ? on_stream_event : on_ring_record,
				    streaming ? (void *)&run.streams : &run.records, NULL);
	if (!run.ring || run.signals < 0) {
		complain("cannot map the ring buffer or open a signalfd: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	run.recording.probe = &run.probe;
	run.recording.workers = &run.workers;
	run.recording.ring = run.ring;
	run.recording.streams = &run.streams;
	if (!open_control(&run.control, options->control))
		return EXIT_FAILURE;
	good = trace_until_stopped(&run);
	close_control(&run.control);
	if (options->watch)
		report_second(&run);
	else
		good = report_run(&run) && good;
	good = good && !run.records.trace.failed;
	if (!close_trace(&run.records.trace))
		good = false;
	ring_buffer__free(run.ring);
	sipprobe__destroy(run.probe.object);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
