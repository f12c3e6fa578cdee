// SPDX-License-Identifier: MIT
#include <math.h>
#include <string.h>
#include "sched.h"
#include "sim.h"

static bool allocate(struct sim *sim)
{
	const struct model *m = &sim->model;

	sim->n_workers = m->workers + m->fronts;
	sim->n_cpus = m->cores;
	if (m->receive_cpus && m->receive_first_cpu + (m->receive_cpus - 1) * m->receive_step >= m->cores)
		sim->n_cpus = m->receive_first_cpu + (m->receive_cpus - 1) * m->receive_step + 1;
	if (m->logger_ns && m->logger_apart && sim->n_cpus == m->cores)
		sim->n_cpus++;
	sim->n_others = m->competitors + (m->logger_ns > 0) + (m->burst_every_ns ? m->cores : 0);
	sim->calls = calloc(m->calls, sizeof(*sim->calls));
	sim->workers = calloc(sim->n_workers + sim->n_others, sizeof(*sim->workers));
	sim->cpus = calloc(sim->n_cpus, sizeof(*sim->cpus));
	sim->locks = calloc(m->instances, sizeof(*sim->locks));
	sim->stall_states = calloc(sim->n_cpus, sizeof(*sim->stall_states));
	sim->burst_states = calloc(m->cores, sizeof(*sim->burst_states));
	sim->log_queue.blocked = calloc(sim->n_workers, sizeof(*sim->log_queue.blocked));
	if (!sim->calls || !sim->workers || !sim->cpus || !sim->locks || !sim->stall_states ||
	    !sim->burst_states || !sim->log_queue.blocked || !sockets_init(sim) ||
	    !tree_init(&sim->tree, SOURCE_CPUS + sim->n_cpus + sim->n_others))
		return false;
	for (uint32_t i = 0; i < m->instances; i++) {
		uint32_t workers = m->compared ? m->compared_workers[i] : m->workers / m->instances;

		sim->locks[i].spinning = calloc(workers + 1, sizeof(struct worker *));
		if (!sim->locks[i].spinning)
			return false;
	}
	for (uint32_t i = 0; i < sim->n_cpus; i++) {
		struct cpu *cpu = &sim->cpus[i];

		cpu->fair.queue = calloc(sim->n_workers + sim->n_others, sizeof(struct worker *));
		cpu->rt.queue = calloc(sim->n_workers + sim->n_others, sizeof(struct worker *));
		cpu->recent = calloc(sim->n_workers + sim->n_others, sizeof(struct worker *));
		if (!cpu->fair.queue || !cpu->rt.queue || !cpu->recent)
			return false;
	}
	return true;
}

/* Assign a worker to its instance, in a run that compares instances. The first workers belong to the first instance. */
static void join_instance(struct sim *sim, struct worker *w)
{
	const struct model *m = &sim->model;
	uint32_t instance = 0, number = w->id;

	while (number >= m->compared_workers[instance])
		number -= m->compared_workers[instance++];
	w->socket = &sim->sockets[instance];
	w->lock = &sim->locks[instance];
	w->cpus = m->compared_cores[instance];
	w->cpu = number % w->cpus;
}

static void init_worker(struct sim *sim, uint32_t id)
{
	const struct model *m = &sim->model;
	struct worker *w = &sim->workers[id];

	w->id = w->last_wakee = id;
	w->socket = &sim->sockets[is_front(sim, w) ? m->sockets : id % m->sockets];
	w->lock = &sim->locks[id % m->instances];
	/* ASSUME fork() distributed the workers evenly over the CPUs (fair.c: find_idlest_cpu()) */
	w->cpu = id % m->cores;
	w->policy = m->policy;
	w->weight = sched_weight(m->nice);
	w->cpus = m->cores;
	if (m->compared)
		join_instance(sim, w);
	w->slice = (int64_t)m->slice_ns;
	w->rt_left_ns = 100000000;
	w->phase = PHASE_TAKE;
	if (!sim->script)
		socket_wait(w);
}

static const char *draw_calls(struct sim *sim)
{
	struct model *m = &sim->model;
	const struct plan *plan = sim->switches.plan;
	enum schedule_law law = m->constant_arrivals ? SCHEDULE_CONSTANT : SCHEDULE_EXPONENTIAL;
	const char *wrong;

	if (sim->replayed) {
		wrong = schedule_read(&sim->schedule, sim->replayed);
		m->calls = sim->schedule.header.count;
		return wrong;
	}
	if (!plan || sim->script)
		return schedule_draw(&sim->schedule, law, m->rate_cps, m->calls, m->seed);
	wrong = schedule_draw_blocks(&sim->schedule, law, m->rate_cps, plan->blocks, m->seed);
	m->calls = sim->schedule.header.count;
	for (uint64_t i = 0; !wrong && i < m->calls; i++)
		if (sim->schedule.calls[i].instance && sim->schedule.calls[i].instance >= m->compared)
			wrong = "the schedule names an instance that the model lacks";
	return wrong;
}

const char *sim_init(struct sim *sim, const struct model *given)
{
	const struct script *script = sim->script;
	const struct plan *plan = sim->switches.plan;
	const struct model *model = &sim->model;
	uint64_t state = given->seed ^ 0x6a09e667f3bcc908ULL;
	const char *wrong;

	sim->model = plan ? plan->modes[plan->windows[0].mode] : *given;
	wrong = draw_calls(sim);
	if (wrong)
		return wrong;
	if (!allocate(sim))
		return "not enough memory";
	sim->open_calls = model->calls;
	sim->end = sim->schedule.calls[model->calls - 1].offset_ns + model->link_ns + model->drain_ns;
	sim->service_seed = splitmix64(&state);
	for (int kind = 0; kind < KINDS; kind++) {
		/* the variance of the logarithm of a lognormal random number with mean 1 and variance service_scv */
		double variance = log(1.0 + model->service_scv[kind]);

		sim->service_sigma[kind] = sqrt(variance);
		sim->service_mu[kind] = -variance / 2.0;
	}
	for (uint32_t i = 0; i < sim->n_workers; i++)
		init_worker(sim, i);
	for (uint32_t i = 0; i < sim->n_cpus; i++) {
		struct cpu *cpu = &sim->cpus[i];

		cpu->id = i;
		cpu->idle_stamp = NEVER;
		cpu->average_idle = 2 * model->migration_cost_ns;
		cpu->last_wakee = UINT32_MAX;
		sim->stall_states[i] = splitmix64(&state);
		cpu_init(sim, cpu);
	}
	competitors_init(sim, &state);
	if (script)
		tree_set(&sim->tree, SOURCE_SCRIPT, script[0].at);
	else
		agents_set(sim);
	if (plan)
		switches_begin(sim);
	return NULL;
}

static void follow_script(struct sim *sim)
{
	const struct script *line = &sim->script[sim->script_next++];
	struct worker *w = &sim->workers[line->worker];

	w->phase = PHASE_SCRIPT;
	w->left_ns = line->work_ns;
	sched_wake(sim, w, NULL);
	cpu_set(sim, &sim->cpus[w->cpu]);
	tree_set(&sim->tree, SOURCE_SCRIPT,
		 sim->script_next < sim->script_length ? sim->script[sim->script_next].at : NEVER);
}

static bool is_empty(const struct sim *sim)
{
	return sim->counts.arrived == sim->counts.refused + sim->counts.left;
}

static const char *check_conservation(struct sim *sim)
{
	const struct counts *c = &sim->counts;
	uint64_t served = 0, ran = 0, task = 0;

	for (uint32_t i = 0; i < sim->n_cpus; i++) {
		struct cpu *cpu = &sim->cpus[i];
		uint64_t spent[SPENT_WAYS], sum = 0;

		cpu_advance(sim, cpu);
		if (cpu->curr)
			cpu->curr->charged_ns = sched_charged(sim, cpu->curr);
		cpu_spent(sim, cpu, spent);
		memcpy(cpu->spent, spent, sizeof(spent));
		for (int way = 0; way < SPENT_WAYS; way++)
			sum += cpu->spent[way];
		if (sum != sim->now)
			return "the parts of a CPU's time do not add up: an error in the program";
		task += cpu->spent[SPENT_TASK];
	}
	for (uint32_t i = 0; i < sim->n_workers + sim->n_others; i++) {
		struct worker *w = &sim->workers[i];

		served += i < sim->model.workers ? w->messages : 0;
		ran += w->ran_ns;
	}
	if (ran != task)
		return "the workers' time differs from the CPUs' time: an error in the program";
	if (!sim->script &&
	    (c->arrived != c->received + c->refused || c->received != c->left || served != c->left))
		return "messages do not add up: an error in the program";
	return NULL;
}

const char *sim_run(struct sim *sim)
{
	for (;;) {
		uint32_t source = tree_first(&sim->tree);
		uint64_t at = sim->tree.at[source];

		if (!sim->over && !sim->script &&
		    (at > sim->end || (!sim->open_calls && switches_over(sim)))) {
			sim->over = true;
			for (uint32_t i = 0; i < SOURCE_CPUS; i++)
				tree_set(&sim->tree, i, NEVER);
			continue;
		}
		if (at == NEVER || (sim->over && is_empty(sim)) || (sim->script_end && at > sim->script_end))
			break;
		if (++sim->counts.events > sim->model.events_max)
			return "not at its end after events_max events: the load is far above the capacity, "
			       "or events_max is too small";
		sim->now = at;
		if (source >= SOURCE_CPUS + sim->n_cpus)
			competitor_event(sim, source - SOURCE_CPUS - sim->n_cpus);
		else if (source >= SOURCE_CPUS)
			cpu_event(sim, &sim->cpus[source - SOURCE_CPUS]);
		else if (source == SOURCE_SCRIPT)
			follow_script(sim);
		else if (source == SOURCE_SWITCHES)
			switches_event(sim);
		else if (source == SOURCE_CALLS)
			agents_call(sim);
		else
			agents_timer(sim, source);
		if (!sim->over && !sim->script)
			agents_set(sim);
		if (sim->failure)
			return sim->failure;
	}
	return check_conservation(sim);
}

void sim_free(struct sim *sim)
{
	for (uint32_t i = 0; sim->cpus && i < sim->n_cpus; i++) {
		free(sim->cpus[i].fair.queue);
		free(sim->cpus[i].rt.queue);
		free(sim->cpus[i].recent);
		fifo_free(&sim->cpus[i].raised);
		fifo_free(&sim->cpus[i].backlog);
	}
	for (int i = 0; i < TIMER_LENGTHS; i++)
		fifo_free(&sim->timers[i]);
	fifo_free(&sim->soon);
	fifo_free(&sim->ring);
	fifo_free(&sim->hold);
	heap_free(&sim->held);
	sockets_free(sim);
	for (uint32_t i = 0; sim->locks && i < sim->model.instances; i++)
		free(sim->locks[i].spinning);
	free(sim->locks);
	free(sim->stall_states);
	free(sim->burst_states);
	free(sim->log_queue.blocked);
	free(sim->workers);
	free(sim->cpus);
	free(sim->calls);
	switches_free(&sim->switches);
	schedule_free(&sim->schedule);
	tree_free(&sim->tree);
}
