// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "arrival.h"
#include "../common/clock.h"
#include "../common/partial.h"
#include "log.h"
#include "run.h"

struct runner {
	const struct plan *plan;
	struct switches switches;
	struct sampler sampler;
	struct log log;
	int signals, timer, arrival;
};

/* Wait until `fd` is readable, and return true. Return false if a signal arrived first. */
static bool wait_readable(const struct runner *runner, int fd)
{
	struct pollfd waiting[] = { { .fd = runner->signals, .events = POLLIN },
				    { .fd = fd, .events = POLLIN } };

	while (poll(waiting, 2, -1) < 0)
		;
	return !waiting[0].revents;
}

/* Wait until the time `instant_ns`, and return true. Return false if a signal arrived first. */
static bool wait_until(const struct runner *runner, uint64_t instant_ns)
{
	struct itimerspec wanted = { .it_value = { (time_t)(instant_ns / NS_PER_S),
						   (long)(instant_ns % NS_PER_S) } };

	/* timerfd_settime() also clears an earlier expiration, so `timer` becomes readable only at the new time. */
	timerfd_settime(runner->timer, TFD_TIMER_ABSTIME, &wanted, NULL);
	return wait_readable(runner, runner->timer);
}

static void make_window(struct runner *runner, size_t window)
{
	switches_make(&runner->switches, runner->plan->windows[window].mode, &runner->log.windows[window]);
	runner->log.n_windows = window + 1;
}

/*
 * Take samples until the time `instant_ns`. Take the last sample SAMPLE_LEAD_NS earlier. Return false if a signal arrived
 * first.
 */
static bool sample_until(struct runner *runner, uint64_t instant_ns, uint64_t *next_ns)
{
	uint64_t last_ns = instant_ns - SAMPLE_LEAD_NS;

	while (*next_ns < last_ns) {
		if (!wait_until(runner, *next_ns))
			return false;
		sampler_take(&runner->sampler);
		while (*next_ns <= clock_ns())
			*next_ns += runner->plan->sample_ns;
	}
	if (!wait_until(runner, last_ns))
		return false;
	sampler_take(&runner->sampler);
	return wait_until(runner, instant_ns);
}

/*
 * Wait for the first INVITE, and then switch to the mode of each window when the window starts. Take samples between
 * these times. Return false if a signal ended the plan early.
 */
static bool play(struct runner *runner)
{
	const struct plan *plan = runner->plan;
	uint64_t t0, next;

	make_window(runner, 0);
	puts("ready");
	fflush(stdout);
	if (!wait_readable(runner, runner->arrival))
		return false;
	t0 = arrival_read(runner->arrival) - plan->first_ns;
	runner->log.t0_ns = t0;
	runner->log.has_t0 = true;
	sampler_take(&runner->sampler);
	/* Switch to the first mode again, so that the first window also begins with a switch. */
	make_window(runner, 0);
	/*
	 * Close the socket. While the socket is open, the kernel reads the clock for every packet, which costs CPU time.
	 * close() takes 10 ms, because the kernel waits for RCU.
	 */
	close(runner->arrival);
	runner->arrival = -1;
	next = clock_ns() + plan->sample_ns;
	for (size_t i = 1; i < plan->n_windows; i++) {
		if (!sample_until(runner, t0 + plan->windows[i].start_ns, &next))
			return false;
		make_window(runner, i);
	}
	if (!sample_until(runner, t0 + plan->end_ns, &next))
		return false;
	return true;
}

static void prepare_process(struct runner *runner, int fifo)
{
	struct sched_param parameters = { .sched_priority = fifo };

	/* Ignore errors, because the program also works without locked memory and SCHED_FIFO. */
	(void)!mlockall(MCL_CURRENT | MCL_FUTURE);
	runner->log.fifo = fifo && !sched_setscheduler(0, SCHED_FIFO, &parameters);
}

static enum exit_code play_and_write(struct runner *runner, const struct run_options *options, FILE *file)
{
	prepare_process(runner, options->fifo);
	runner->log.by_signal = !play(runner);
	if (runner->log.has_t0)
		sampler_take(&runner->sampler);
	log_write(file, &runner->log, &runner->switches, &runner->sampler);
	return partial_close(file, options->log) ? EXIT_GOOD : fail(options->log, strerror(errno));
}

/* Open all files and sockets of a run. Return NULL, or the name of the failed part, with the reason in errno. */
static const char *open_runner(struct runner *runner, const struct run_options *options,
			       const sigset_t *signals)
{
	const struct plan *plan = runner->plan;
	size_t n_samples = plan->end_ns / plan->sample_ns + plan->n_windows + 4;
	const char *wrong;

	runner->log.windows = keep(calloc(plan->n_windows, sizeof(*runner->log.windows)));
	memset(runner->log.windows, 1, plan->n_windows * sizeof(*runner->log.windows));
	switches_open(&runner->switches, plan, options->tasks.pids, options->tasks.n, options->probe_control);
	wrong = sampler_open(&runner->sampler, &options->tasks, &options->cpus, options->tcp, n_samples);
	runner->signals = signalfd(-1, signals, SFD_CLOEXEC);
	runner->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	runner->arrival = arrival_open(options->port, options->last_port, options->tcp);
	if (wrong)
		return wrong;
	return runner->signals < 0   ? "signalfd"
	       : runner->timer < 0   ? "timerfd"
	       : runner->arrival < 0 ? "a packet socket"
				     : NULL;
}

static enum exit_code run_plan(const struct plan *plan, const struct run_options *options,
			       const sigset_t *signals)
{
	struct runner runner = { .plan = plan };
	enum exit_code code;
	const char *wrong;
	FILE *file;

	if (plan->has_probe && !options->probe_control) {
		fprintf(stderr, "switcher: %s: a mode switches the probe: expected --probe-control SOCKET\n",
			options->plan);
		return EXIT_USAGE;
	}
	file = partial_open(options->log);
	if (!file)
		return fail(options->log, strerror(errno));
	wrong = open_runner(&runner, options, signals);
	if (wrong) {
		code = fail(wrong, strerror(errno));
		partial_drop(file, options->log);
	} else {
		code = play_and_write(&runner, options, file);
	}
	switches_close(&runner.switches);
	sampler_close(&runner.sampler);
	free(runner.log.windows);
	return code;
}

enum exit_code run(const struct run_options *options)
{
	struct plan plan;
	enum exit_code code;
	/*
	 * Block SIGINT and SIGTERM, because a signal would otherwise end the program before the program has written the
	 * log.
	 */
	sigset_t signals = block_signals();

	if (!plan_read(&plan, options->plan))
		return EXIT_USAGE;
	code = run_plan(&plan, options, &signals);
	plan_free(&plan);
	return code;
}
