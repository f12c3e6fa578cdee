// SPDX-License-Identifier: MIT
#include <math.h>
#include "sched.h"
#include "sim.h"

static bool wants_lock(const struct worker *w)
{
	return w->held_ns > 0;
}

bool phase_is_event(const struct sim *sim, const struct worker *w)
{
	(void)sim;
	return w->phase != PHASE_COPY && w->phase != PHASE_BEFORE && w->phase != PHASE_AFTER;
}

uint64_t worker_span(const struct sim *sim, const struct worker *w)
{
	uint64_t send_ns = sim->model.send_ns;

	switch (w->phase) {
	case PHASE_COPY:
		if (sim->logger)
			return w->left_ns;
		return w->left_ns + w->before_ns + (wants_lock(w) ? 0 : send_ns);
	case PHASE_BEFORE:
		return w->left_ns + (wants_lock(w) ? 0 : send_ns);
	case PHASE_AFTER:
		return w->left_ns + send_ns;
	default:
		return w->left_ns;
	}
}

void worker_pass(struct sim *sim, struct worker *w, uint64_t at)
{
	if (w->phase == PHASE_COPY) {
		w->record.t_sip_in = at;
		w->record.cpu = (uint16_t)w->cpu;
		w->in_service = true;
		w->phase = sim->logger ? PHASE_LOG : PHASE_BEFORE;
		w->left_ns = sim->logger ? 0 : w->before_ns;
	} else if (w->phase == PHASE_BEFORE && wants_lock(w)) {
		w->phase = PHASE_LOCK;
		w->left_ns = 0;
	} else {
		w->record.t_sip_out = at;
		w->in_service = false;
		w->phase = PHASE_SEND;
		w->left_ns = sim->model.send_ns;
	}
}

/*
 * Return the service time of a message. The service time depends only on the seed and the message, so it is the same
 * for any worker and at any time. A repeated call has the same times.
 */
uint64_t service_time(struct sim *sim, const struct timer *message)
{
	uint64_t call = sim->switches.plan ? sim->schedule.calls[message->call].random : message->call;
	uint64_t message_id = call << 16 | (uint64_t)message->again << 8 | message->kind;
	uint64_t state = sim->service_seed ^ message_id;
	double mean_ns = sim->model.service_ns[message->kind], drawn = 1.0;

	splitmix64(&state);
	if (sim->model.service_law == LAW_EXPONENTIAL) {
		drawn = draw_exponential(&state);
	} else if (sim->model.service_law == LAW_LOGNORMAL && sim->service_sigma[message->kind] > 0.0) {
		/* sample a normal random number by the method of Box and Muller 1958 */
		double radius = sqrt(2.0 * draw_exponential(&state));
		double turn = (double)(splitmix64(&state) >> 11) * 0x1p-53;

		drawn = exp(sim->service_mu[message->kind] +
			    sim->service_sigma[message->kind] * radius * cos(2.0 * M_PI * turn));
	}
	return (uint64_t)(drawn * mean_ns + 0.5);
}

/* Begin to serve a message. `left_ns` already contains the time for the socket's lock. */
static void take(struct sim *sim, struct worker *w)
{
	uint64_t service_ns;

	w->messages++;
	w->looked = true;
	if (is_front(sim, w)) {
		w->phase = PHASE_FORWARD;
		w->left_ns += sim->model.front_ns + w->cold_ns;
		w->cold_ns = 0;
		return;
	}
	service_ns = service_time(sim, &w->message);
	w->held_ns = (uint64_t)((double)service_ns * sim->model.lock_share + 0.5);
	w->before_ns = wants_lock(w) ? (service_ns - w->held_ns) / 2 : service_ns;
	w->after_ns = service_ns - w->held_ns - w->before_ns;
	w->before_ns += w->cold_ns;
	w->cold_ns = 0;
	w->record = (struct trace_record){
		.t_arr = w->message.since,
		.t_stack = w->message.at,
		.t_sockq = sim->now,
		.rmem = w->message.rmem,
	};
	w->phase = PHASE_COPY;
	w->left_ns += sim->model.copy_ns + sim->model.stream_ns;
}

static void spin(struct sim *sim, struct worker *w)
{
	struct lock *lock = w->lock;

	w->phase = PHASE_SPIN;
	w->left_ns = sim->model.spin_ns + sim->model.yield_ns;
	lock->spinning[lock->n_spinning++] = w;
}

static void stop_spinning(struct lock *lock, uint32_t place)
{
	lock->n_spinning--;
	for (uint32_t i = place; i < lock->n_spinning; i++)
		lock->spinning[i] = lock->spinning[i + 1];
}

static void hold(struct worker *w)
{
	w->lock->holder = w;
	w->phase = PHASE_HELD;
	w->left_ns = w->held_ns;
}

/*
 * Release the lock. The first worker that spins on a CPU takes the lock at once. A worker that was switched out tries
 * again when it runs.
 */
static void release(struct sim *sim, struct lock *lock)
{
	lock->holder = NULL;
	for (uint32_t i = 0; i < lock->n_spinning; i++) {
		struct worker *w = lock->spinning[i];
		struct cpu *cpu = &sim->cpus[w->cpu];

		if (cpu->curr != w || cpu->resume_at > sim->now)
			continue;
		cpu_advance(sim, cpu);
		stop_spinning(lock, i);
		hold(w);
		cpu_set(sim, cpu);
		return;
	}
}

void worker_resumes(struct worker *w)
{
	struct lock *lock = w->lock;

	if (w->phase != PHASE_SPIN)
		return;
	for (uint32_t i = 0; i < lock->n_spinning; i++)
		if (lock->spinning[i] == w)
			stop_spinning(lock, i);
	w->phase = PHASE_LOCK;
	w->left_ns = 0;
}

static void depart(struct sim *sim, struct worker *w)
{
	w->record.t_dep = sim->now;
	trace_message(sim, w);
	sim->counts.left++;
	sim->counts.k_rcv_ns += w->record.t_sip_in - w->record.t_arr;
	sim->counts.t_sip_ns += w->record.t_sip_out - w->record.t_sip_in;
	sim->counts.datagrams_sent += 1 + (sim->model.trying && w->message.kind == TRACE_KIND_INVITE);
	agents_receive(sim, &w->message);
	if (w->message.kind == TRACE_KIND_200_BYE)
		socket_close(sim, w->message.call);
	w->phase = PHASE_LOOP;
	w->left_ns = sim->model.loop_ns;
}

/* Charge the receive call that found the queue empty, and then let the worker sleep. */
static bool find_nothing(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	if (!w->looked) {
		w->looked = true;
		w->empty_receives++;
		if (sim->model.empty_receive_ns) {
			w->phase = PHASE_LOOP;
			w->left_ns = sim->model.empty_receive_ns;
			return true;
		}
	}
	w->phase = PHASE_TAKE;
	socket_wait(w);
	sched_sleep(sim, cpu);
	return false;
}

/* Perform one step of a worker. Return whether the worker continues. */
static bool step(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	switch (w->phase) {
	case PHASE_LOOP:
		w->phase = PHASE_TAKE;
		return true;
	case PHASE_TAKE:
		if (!socket_take(sim, w))
			return find_nothing(sim, cpu, w);
		take(sim, w);
		return true;
	case PHASE_LOCK:
		if (w->lock->holder)
			spin(sim, w);
		else
			hold(w);
		return true;
	case PHASE_SPIN:
		worker_resumes(w);
		w->yields++;
		sched_yield_curr(sim, cpu);
		return cpu->curr == w;
	case PHASE_HELD:
		release(sim, w->lock);
		w->phase = PHASE_AFTER;
		w->left_ns = w->after_ns;
		return true;
	case PHASE_SEND:
		depart(sim, w);
		return true;
	case PHASE_FORWARD:
		w->phase = PHASE_TAKE;
		socket_forward(sim, cpu, &w->message);
		sched_check(sim, cpu);
		return cpu->curr == w;
	case PHASE_LOG:
		return competitor_log(sim, cpu, w);
	case PHASE_COMPETE:
		return competitor_step(sim, cpu, w);
	case PHASE_SCRIPT:
		sched_sleep(sim, cpu);
		return false;
	default:
		return true;
	}
}

void worker_event(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	while (cpu->curr == w && cpu->resume_at <= sim->now && !w->left_ns && phase_is_event(sim, w) &&
	       step(sim, cpu, w))
		;
}
