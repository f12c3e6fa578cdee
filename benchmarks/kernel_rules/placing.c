// SPDX-License-Identifier: MIT
/*
 * Let the simulator decide whether a task may move to another CPU. This code is
 * in a separate file from simulator.c, because placement.c and cfs.c have static
 * functions with the same names.
 */
#include "placement.c"
#include "rules.h"
#include <string.h>

void decide_placement(const struct state *state, struct decisions *made)
{
	static const enum policy POLICIES[] = { POLICY_OTHER, POLICY_BATCH, POLICY_IDLE };
	struct cpu from = { 0 }, to = { 0 };
	struct worker w = { .policy = POLICIES[state->policy[0]] }, other = { 0 };
	struct sim sim = { .now = 1000000000 };

	sim.model.migration_cost_ns = state->migration_cost_ns;
	sim.model.cores_per_processor = state->size;
	w.exec_start = sim.now - state->since_ns;
	from.fair.next = state->next == 0 ? &w : NULL;
	from.fair.last = state->last == 0 ? &w : NULL;
	to.curr = state->target_runs ? &other : NULL;
	other.on_rq = true;
	made->is_hot = is_hot(&sim, &from, &to, &w);
	made->wakes_many = wakes_many(&sim, state->flips[0], state->flips[1]);
}
