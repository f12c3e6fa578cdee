// SPDX-License-Identifier: MIT
/*
 * Let the simulator decide in a state of a run queue. This file includes the simulator's cfs.c, because the functions
 * that decide are static in cfs.c.
 */
#include "cfs.c"
#include "rules.h"
#include <stdlib.h>
#include <string.h>

static struct sim sim;
static struct cpu cpu;
static struct worker workers[TASKS], sleeper;
static struct worker *queue[TASKS];

static struct worker *buddy(int number)
{
	return number == NONE ? NULL : &workers[number];
}

static void load(const struct state *state)
{
	static const enum policy POLICIES[] = { POLICY_OTHER, POLICY_BATCH, POLICY_IDLE };

	memset(&sim, 0, sizeof(sim));
	memset(&cpu, 0, sizeof(cpu));
	sim.cpus = &cpu;
	sim.now = 1000000000;
	sim.model.latency_ns = state->latency_ns;
	sim.model.min_granularity_ns = state->min_granularity_ns;
	sim.model.wakeup_granularity_ns = state->wakeup_granularity_ns;
	sim.model.nr_latency = state->nr_latency;
	sim.model.release = with_base_slice ? RELEASE_6_1 : RELEASE_5_10;
	cpu.fair.queue = queue;
	cpu.fair.min_vruntime = (int64_t)state->min_vruntime;
	for (int i = 0; i < state->n; i++) {
		workers[i] = (struct worker){ .vruntime = (int64_t)state->vruntime[i],
					      .weight = (uint32_t)state->weight[i],
					      .policy = POLICIES[state->policy[i]],
					      .exec_start = sim.now,
					      .on_rq = true };
		if (i == state->curr) {
			cpu.curr = &workers[i];
			cpu.curr->exec_sum = state->ran_ns;
		} else {
			fair_add(&cpu.fair, &workers[i], sim.order++);
		}
	}
	cpu.fair.next = buddy(state->next);
	cpu.fair.last = buddy(state->last);
	cpu.fair.skip = buddy(state->skip);
}

static int number_of(const struct worker *w)
{
	return w ? (int)(w - workers) : NONE;
}

void decide_as_simulator(const struct state *state, struct decisions *made)
{
	load(state);
	made->pick = number_of(pick(&sim, &cpu));
	made->compare = compare(&sim, &workers[0], &workers[1]);
	update_min_vruntime(&cpu);
	made->min_vruntime = (uint64_t)cpu.fair.min_vruntime;
	load(state);
	sleeper.vruntime = (int64_t)state->sleeper_vruntime;
	place(&sim, &cpu, &sleeper);
	made->place = (uint64_t)sleeper.vruntime;
	decide_placement(state, made);
	if (state->curr == NONE)
		return;
	made->slice = slice_of(&sim, &cpu, cpu.curr);
	tick(&sim, &cpu);
	made->tick = cpu.need_resched;
	load(state);
	wakeup_preempt(&sim, &cpu, &workers[state->woken]);
	made->preempts = cpu.need_resched;
	made->next = number_of(cpu.fair.next);
	made->last = number_of(cpu.fair.last);
}
