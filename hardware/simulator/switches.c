// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <string.h>
#include "sched.h"
#include "switches.h"

#define TICKS_PER_S 100

static uint64_t ticks(uint64_t ns)
{
	return ns / (1000000000 / TICKS_PER_S);
}

static void look(struct sim *sim)
{
	struct switches *s = &sim->switches;
	struct sample *sample;

	if (s->n_samples == s->room) {
		struct sample *larger;

		s->room = s->room ? 2 * s->room : 256;
		larger = realloc(s->samples, s->room * sizeof(*larger));
		if (!larger) {
			sim->failure = "not enough memory";
			return;
		}
		s->samples = larger;
	}
	sample = &s->samples[s->n_samples++];
	*sample = (struct sample){ .t_ns = sim->now + T0_NS,
				   .datagrams = sim->counts.received,
				   .refused = sim->counts.refused };
	for (uint32_t i = 0; i < sim->model.cores; i++) {
		uint64_t spent[SPENT_WAYS];

		cpu_spent(sim, &sim->cpus[i], spent);
		sample->steal_ticks += ticks(spent[SPENT_STALL]);
		sample->idle_ticks += ticks(spent[SPENT_IDLE]);
		sample->softirq_ticks += ticks(spent[SPENT_RECEIVE]);
	}
	for (uint32_t i = 0; i < sim->n_workers; i++)
		sample->cpu_ns += sched_charged(sim, &sim->workers[i]);
}

/* Return the start time of a window. If `window` is the number of windows, return the end of the last window. */
static uint64_t instant_of(const struct sim *sim, uint32_t window)
{
	const struct plan *plan = sim->switches.plan;

	return sim->model.link_ns +
	       (window < plan->n_windows ? plan->windows[window].start_ns : plan->end_ns);
}

static void set_next(struct sim *sim)
{
	const struct switches *s = &sim->switches;
	uint64_t at = instant_of(sim, s->window);

	if (s->next_look + SAMPLE_LEAD_NS < at)
		at = s->next_look;
	else if (!s->looked)
		at -= SAMPLE_LEAD_NS;
	tree_set(&sim->tree, SOURCE_SWITCHES, at > sim->now ? at : sim->now);
}

static void make_switch(struct sim *sim, uint32_t mode)
{
	const struct plan *plan = sim->switches.plan;
	uint64_t calls = sim->model.calls;

	sim->model = plan->modes[mode];
	sim->model.calls = calls;
	for (uint32_t i = 0; i < sim->n_workers; i++)
		sched_set(sim, &sim->workers[i]);
	for (uint32_t i = 0; plan->setattr_ns && i < sim->n_workers; i++)
		cpu_stall(sim, &sim->cpus[sim->workers[i].cpu], plan->setattr_ns);
	for (uint32_t i = 0; i < sim->model.cores; i++) {
		sched_check(sim, &sim->cpus[i]);
		cpu_set(sim, &sim->cpus[i]);
	}
}

void switches_begin(struct sim *sim)
{
	struct switches *s = &sim->switches;

	s->looked = true;
	s->next_look = NEVER - SAMPLE_LEAD_NS;
	set_next(sim);
}

void switches_event(struct sim *sim)
{
	struct switches *s = &sim->switches;
	uint64_t at = instant_of(sim, s->window);

	if (sim->now < at) {
		look(sim);
		if (s->next_look + SAMPLE_LEAD_NS < at)
			while (s->next_look <= sim->now)
				s->next_look += s->plan->sample_ns;
		else
			s->looked = true;
	} else if (s->window == s->plan->n_windows) {
		look(sim);
		s->window++;
		tree_set(&sim->tree, SOURCE_SWITCHES, NEVER);
		return;
	} else {
		if (!s->window) {
			look(sim);
			s->next_look = sim->now + s->plan->sample_ns;
		}
		make_switch(sim, s->plan->windows[s->window].mode);
		s->window++;
		s->looked = false;
	}
	set_next(sim);
}

bool switches_over(const struct sim *sim)
{
	return !sim->switches.plan || sim->switches.window > sim->switches.plan->n_windows;
}

bool switches_write(struct sim *sim, FILE *file)
{
	const struct switches *s = &sim->switches;
	uint64_t took_ns = s->plan->setattr_ns * sim->n_workers;

	fprintf(file, "{\"version\":%d,\"t0_ns\":%" PRIu64 ",\"tasks\":%" PRIu32, LOG_VERSION,
		sim->model.link_ns + T0_NS, sim->n_workers);
	fprintf(file, ",\"simulated\":true,\"ended\":\"%s\",\"ticks_per_s\":%d,\n\"windows\":[",
		switches_over(sim) ? "plan" : "signal", TICKS_PER_S);
	for (uint32_t i = 0; i < s->plan->n_windows && i < s->window; i++) {
		uint64_t at = instant_of(sim, i) + T0_NS;

		fprintf(file,
			"%s\n{\"asked_ns\":%" PRIu64 ",\"began_ns\":%" PRIu64 ",\"done_ns\":%" PRIu64
			",\"errors\":0,\"unlike\":0,\"error\":\"\"}",
			i ? "," : "", at, at, at + took_ns);
	}
	fputs("],\n\"samples\":", file);
	samples_write(file, s->samples, s->n_samples);
	fputs("}\n", file);
	return true;
}

void switches_free(struct switches *switches)
{
	free(switches->samples);
}
