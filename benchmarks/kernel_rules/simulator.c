// SPDX-License-Identifier: MIT
/*
 * Let the simulator decide in a state of a run queue. This file includes the
 * simulator's cfs.c, because the functions that decide are static in cfs.c.
 */
#include "cfs.c"
#include "rules.h"
#include <stdlib.h>
#include <string.h>

static const enum policy POLICIES[] = { POLICY_OTHER, POLICY_BATCH, POLICY_IDLE };
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
	memset(&sim, 0, sizeof(sim));
	memset(&cpu, 0, sizeof(cpu));
	sim.cpus = &cpu;
	sim.now = NOW_NS;
	sim.model.rules = RULES_CFS;
	sim.model.latency_ns = state->latency_ns;
	sim.model.min_granularity_ns = state->min_granularity_ns;
	sim.model.wakeup_granularity_ns = state->wakeup_granularity_ns;
	sim.model.nr_latency = state->nr_latency;
	sim.model.release = with_base_slice ? RELEASE_6_1 : RELEASE_5_10;
	cpu.fair.queue = queue;
	cpu.resume_at = NEVER; /* the benchmark tests no work of the tasks */
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

static struct times times_of(const struct worker *w)
{
	return (struct times){ (uint64_t)w->vruntime, (uint64_t)cpu.fair.min_vruntime };
}

static void load_uncharged(const struct state *state)
{
	load(state);
	if (cpu.curr)
		cpu.curr->exec_start = sim.now - state->uncharged_ns;
}

static void decide_departures(const struct state *state, struct decisions *made)
{
	struct worker *w;

	if (state->changed != NONE) {
		w = &workers[state->changed];
		load_uncharged(state);
		sim.model.policy = w->policy == POLICY_BATCH ? POLICY_OTHER : POLICY_BATCH;
		sim.model.nice = state->new_nice;
		sched_set(&sim, w);
		made->change = times_of(w);
	}
	if (state->curr == NONE)
		return;
	load_uncharged(state);
	w = cpu.curr;
	dequeue(&sim, &cpu, w, true);
	made->sleep = times_of(w);
	cpu.curr = NULL;
	cpu.fair.min_vruntime += (int64_t)state->slept_ns;
	enqueue(&sim, &cpu, w, true);
	made->wake = times_of(w);
	load_uncharged(state);
	w = &workers[state->woken];
	dequeue(&sim, &cpu, w, false);
	made->move = times_of(w);
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
	sleeper.policy = POLICIES[state->sleeper_policy];
	place(&sim, &cpu, &sleeper);
	made->place = (uint64_t)sleeper.vruntime;
	decide_placement(state, made);
	decide_departures(state, made);
	if (state->curr == NONE)
		return;
	load(state);
	made->slice = slice_of(&sim, &cpu, cpu.curr);
	tick(&sim, &cpu);
	made->tick = cpu.need_resched;
	load(state);
	wakeup_preempt(&sim, &cpu, &workers[state->woken]);
	made->preempts = cpu.need_resched;
	made->next = number_of(cpu.fair.next);
	made->last = number_of(cpu.fair.last);
}
