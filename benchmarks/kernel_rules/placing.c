// SPDX-License-Identifier: MIT
/*
 * Let the simulator decide on which CPU a task runs. This code is in a separate
 * file from simulator.c, because placement.c and cfs.c have static functions
 * with the same names.
 */
#include "placement.c"
#include "rules.h"
#include <string.h>

static const enum policy POLICIES[] = { POLICY_OTHER, POLICY_BATCH, POLICY_IDLE };

void decide_placement(const struct state *state, struct decisions *made)
{
	struct cpu from = { 0 }, to = { 0 };
	struct worker w = { .policy = POLICIES[state->policy[0]] }, other = { 0 };
	struct sim sim = { .now = NOW_NS };

	sim.model.migration_cost_ns = state->migration_cost_ns;
	w.exec_start = sim.now - state->since_ns;
	from.fair.next = state->next == 0 ? &w : NULL;
	from.fair.last = state->last == 0 ? &w : NULL;
	to.curr = state->target_runs ? &other : NULL;
	other.on_rq = true;
	made->is_hot = is_hot(&sim, &from, &to, &w);
	made->wakes_many = wakes_many(state->size, state->flips[0], state->flips[1]);
}

static struct sim sim;
static struct cpu cpus[CPUS];
static struct worker workers[MACHINE_TASKS];

static void load_machine(const struct machine *m)
{
	static struct worker *queues[CPUS][MACHINE_TASKS];
	struct cpu *waker = &cpus[m->waker];

	memset(&sim, 0, sizeof(sim));
	memset(cpus, 0, sizeof(cpus));
	sim.now = NOW_NS;
	sim.cpus = cpus;
	sim.workers = workers;
	sim.model.cores = (uint32_t)m->cpus;
	sim.model.cores_per_processor = (uint32_t)m->shared;
	sim.model.placement = true;
	sim.model.rules = RULES_CFS;
	sim.model.release = with_base_slice ? RELEASE_6_1 : RELEASE_5_10;
	sim.model.migration_cost_ns = m->migration_cost_ns;
	sim.model.balance_ns = m->balance_ns;
	for (uint32_t i = 0; i < sim.model.cores; i++) {
		cpus[i].id = i;
		cpus[i].fair.queue = queues[i];
		cpus[i].idle_stamp = NEVER;
	}
	for (int i = 0; i < m->n; i++)
		workers[i] = (struct worker){ .id = (uint32_t)i,
					      .cpu = (uint32_t)m->cpu[i],
					      .first_cpu = (uint32_t)m->first_cpu[i],
					      .cpus = (uint32_t)m->n_cpus[i],
					      .policy = POLICIES[m->policy[i]],
					      .weight = (uint32_t)m->weight[i],
					      .exec_start = sim.now };
	for (int i = 0; i < m->steps; i++) {
		struct worker *w = &workers[m->step[i].task];
		struct cpu *cpu = cpu_of(&sim, w);

		if (m->step[i].runs) {
			if (cpu->curr)
				CFS.put(&sim, cpu, cpu->curr);
			CFS.set_next(&sim, cpu, w);
			cpu->curr = w;
		} else {
			CFS.enqueue(&sim, cpu, w, false);
		}
	}
	for (int i = 0; i < m->n; i++)
		workers[i].exec_start = sim.now - m->since_ns[i];
	workers[0].flips = m->flips[1];
	workers[0].flips_at = sim.now - m->decayed_ns[1];
	if (waker->curr) {
		waker->curr->flips = m->flips[0];
		waker->curr->flips_at = sim.now - m->decayed_ns[0];
		waker->curr->last_wakee = m->same_wakee ? 0 : UINT32_MAX;
	} else {
		waker->flips = m->flips[0];
		waker->flips_at = sim.now - m->decayed_ns[0];
		waker->last_wakee = m->same_wakee ? 0 : UINT32_MAX;
	}
}

void choose_as_simulator(const struct machine *m, struct choices *made)
{
	struct cpu *idle = &cpus[m->newly_idle];
	int cpu;

	load_machine(m);
	cpu = (int)placement_select(&sim, &workers[0], &cpus[m->waker])->id;
	for (int without = 0; without < WITHOUT; without++)
		made->cpu[without] = cpu;
	load_machine(m);
	idle->average_idle = m->average_idle_ns;
	for (int level = 0; level < LEVELS; level++)
		idle->balance[level].failed = m->balance_failed;
	made->taken = 0;
	if (placement_newidle(&sim, idle))
		for (uint32_t i = 0; i < idle->fair.length; i++)
			made->taken |= 1 << idle->fair.queue[i]->id;
	made->is_idle = idle->idle_stamp != NEVER;
	load_machine(m);
	idle->average_idle = m->average_idle_ns;
	idle->idle_stamp = sim.now - m->idle_ns;
	placement_idle_ended(&sim, idle);
	made->average_idle_ns = idle->average_idle;
}
