// SPDX-License-Identifier: MIT
#include <string.h>
#include "sched.h"
#include "sim.h"

/*
 * Values of `kind` for backlog entries that are not datagrams. A STALL entry is a stall of `since` ns. When a softirq
 * has delivered its datagram, its entry becomes a WAKE entry, which lasts while the softirq takes the socket's lock and
 * wakes workers.
 */
#define STALL TRACE_KIND_OTHER
#define WAKE  KINDS

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t draw_mean(uint64_t *state, uint64_t mean_ns)
{
	return (uint64_t)(draw_exponential(state) * (double)mean_ns + 0.5);
}

void cpu_init(struct sim *sim, struct cpu *cpu)
{
	cpu->next_stall = NEVER;
	if (sim->model.stall_every_ns && sim->model.stall_ns)
		cpu->next_stall = draw_mean(&sim->stall_states[cpu->id], sim->model.stall_every_ns);
	cpu_set(sim, cpu);
}

/* Return whether the kernel charges the time of the current softirq or stall to the interrupted task. */
static bool is_charged(const struct sim *sim, const struct cpu *cpu)
{
	return cpu->receiving == SPENT_RECEIVE && !sim->model.irq_time_accounting;
}

/* Return the CPU's time without uncharged softirqs and stalls (the kernel's update_rq_clock_task() with steal time). */
uint64_t cpu_task_clock(const struct sim *sim, const struct cpu *cpu)
{
	bool to_come = cpu->receive_until > sim->now && !is_charged(sim, cpu);

	return sim->now - (cpu->irq_ns - (to_come ? cpu->receive_until - sim->now : 0));
}

void cpu_set(struct sim *sim, struct cpu *cpu)
{
	uint64_t at = fifo_next(&cpu->backlog), raised = fifo_next(&cpu->raised);

	if (raised < at)
		at = raised;
	if (cpu->next_stall < at)
		at = cpu->next_stall;
	if (cpu->curr) {
		uint64_t done = cpu->resume_at + worker_span(sim, cpu->curr);

		if (done < at)
			at = done;
		if (cpu->next_tick < at)
			at = cpu->next_tick;
	}
	tree_set(&sim->tree, SOURCE_CPUS + cpu->id, at);
}

void cpu_advance(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;
	uint64_t ran, at = cpu->resume_at;

	if (!w || sim->now < at)
		return;
	ran = sim->now - at;
	cpu->spent[SPENT_TASK] += ran;
	w->ran_ns += ran;
	cpu->resume_at = sim->now;
	while (!phase_is_event(sim, w) && ran >= w->left_ns) {
		at += w->left_ns;
		ran -= w->left_ns;
		worker_pass(sim, w, at);
	}
	if (w->phase == PHASE_SPIN)
		w->spun_ns += ran;
	w->left_ns -= ran;
}

/* Begin the first entry of the backlog, which is a softirq or a stall. All other work of the CPU waits. */
static void begin(struct sim *sim, struct cpu *cpu, uint64_t ns, enum spent way)
{
	cpu_advance(sim, cpu);
	if (cpu->curr) {
		cpu->resume_at = later(cpu->resume_at, sim->now) + ns;
	} else {
		uint64_t idle_from = later(cpu->idle_from, cpu->receive_until);

		if (sim->now > idle_from)
			cpu->spent[SPENT_IDLE] += sim->now - idle_from;
		cpu->idle_from = sim->now;
	}
	cpu->receive_until = fifo_at(&cpu->backlog, 0)->at = sim->now + ns;
	cpu->receiving = way;
	cpu->irq_ns += is_charged(sim, cpu) ? 0 : ns;
	cpu->spent[way] += ns;
}

static void begin_next(struct sim *sim, struct cpu *cpu)
{
	const struct timer *next = fifo_at(&cpu->backlog, 0);

	if (next->kind == STALL)
		begin(sim, cpu, next->since, SPENT_STALL);
	else
		begin(sim, cpu, sim->model.receive_ns + sim->model.dispatch_ns, SPENT_RECEIVE);
}

static void interrupt(struct sim *sim, struct cpu *cpu, struct timer timer)
{
	if (!fifo_push(&cpu->backlog, timer))
		sim->failure = "not enough memory";
	else if (cpu->backlog.length == 1)
		begin_next(sim, cpu);
}

void cpu_packet(struct sim *sim, struct timer message)
{
	bool from_uas = message.kind == TRACE_KIND_180 || message.kind == TRACE_KIND_200_INVITE ||
			message.kind == TRACE_KIND_200_BYE;
	uint64_t flow;
	struct cpu *cpu;

	sim->counts.arrived++;
	message.since = sim->now;
	if (!sim->model.receive_cpus) {
		socket_deliver(sim, NULL, &message);
		return;
	}
	/*
	 * Choose the CPU for the datagram by its flow, as the kernel's get_rps_cpu() in net/core/dev.c does. Each address of
	 * the UAC and each address of the UAS sends one flow.
	 */
	flow = 2 * (message.call % sim->model.peers) + from_uas;
	cpu = &sim->cpus[sim->model.receive_first_cpu +
			 flow % sim->model.receive_cpus * sim->model.receive_step];
	message.at = sim->now + sim->model.interrupt_ns;
	/*
	 * A datagram that arrives while a softirq polls needs no interrupt, because the softirq finds it in the backlog
	 * (the kernel's enqueue_to_backlog() in net/core/dev.c).
	 */
	if (cpu->backlog.length || message.at == sim->now)
		interrupt(sim, cpu, message);
	else if (!fifo_push(&cpu->raised, message))
		sim->failure = "not enough memory";
	cpu_set(sim, cpu);
}

void cpu_stall(struct sim *sim, struct cpu *cpu, uint64_t ns)
{
	interrupt(sim, cpu, (struct timer){ .kind = STALL, .since = ns });
}

static void stall(struct sim *sim, struct cpu *cpu)
{
	uint64_t *state = &sim->stall_states[cpu->id];
	uint64_t length = draw_mean(state, sim->model.stall_ns);

	cpu->next_stall = sim->now + length + draw_mean(state, sim->model.stall_every_ns);
	cpu_stall(sim, cpu, length);
}

void cpu_spent(const struct sim *sim, const struct cpu *cpu, uint64_t spent[SPENT_WAYS])
{
	uint64_t to_come = cpu->receive_until > sim->now ? cpu->receive_until - sim->now : 0;

	memcpy(spent, cpu->spent, sizeof(cpu->spent));
	/* a softirq or stall is accounted completely at its start, so subtract the part that has not passed yet */
	spent[cpu->receiving] -= to_come;
	if (!cpu->curr) {
		uint64_t idle_from = later(cpu->idle_from, cpu->receive_until);

		if (sim->now > idle_from)
			spent[SPENT_IDLE] += sim->now - idle_from;
	} else if (cpu->resume_at > sim->now) {
		spent[SPENT_SWITCH] -= cpu->resume_at - sim->now - to_come;
	} else {
		spent[SPENT_TASK] += sim->now - cpu->resume_at;
	}
}

/*
 * End the first entry of the backlog, a softirq or a stall. A softirq delivers its datagram, and then spends time on the
 * socket's lock and on waking workers.
 */
static void end(struct sim *sim, struct cpu *cpu)
{
	struct timer *first = fifo_at(&cpu->backlog, 0);
	uint64_t more_ns = 0;

	cpu_advance(sim, cpu);
	if (first->kind != STALL && first->kind != WAKE)
		more_ns = socket_deliver(sim, cpu, first);
	first->kind = WAKE;
	if (more_ns) {
		begin(sim, cpu, more_ns, SPENT_RECEIVE);
		return;
	}
	fifo_pop(&cpu->backlog);
	if (cpu->backlog.length)
		begin_next(sim, cpu);
	else
		sched_check(sim, cpu);
}

void cpu_event(struct sim *sim, struct cpu *cpu)
{
	if (fifo_next(&cpu->backlog) == sim->now) {
		end(sim, cpu);
	} else if (fifo_next(&cpu->raised) == sim->now) {
		while (cpu->raised.length)
			interrupt(sim, cpu, fifo_pop(&cpu->raised));
	} else if (cpu->next_stall == sim->now) {
		stall(sim, cpu);
	} else if (cpu->resume_at + worker_span(sim, cpu->curr) == sim->now) {
		cpu_advance(sim, cpu);
		worker_event(sim, cpu);
	} else {
		cpu_advance(sim, cpu);
		cpu->next_tick += sim->model.tick_ns;
		sched_tick(sim, cpu);
	}
	cpu_set(sim, cpu);
}
