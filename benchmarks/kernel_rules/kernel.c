// SPDX-License-Identifier: MIT
/*
 * Let the kernel's functions decide in a state of a run queue. `fair.h` has
 * unchanged functions of kernel/sched/fair.c, which ../kernel_rules.py extracts.
 * This file defines the types and functions that the kernel's functions use. The
 * run queue has one CPU and no task groups. An array replaces the kernel's tree.
 */
#include "rules.h"
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
#define likely(x)         (x)
#define unlikely(x)       (x)
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define swap(a, b)                  \
	do {                        \
		unsigned int c = a; \
		a = b;              \
		b = c;              \
	} while (0)
#define BITS_PER_LONG                  64
#define WMULT_CONST                    (~0U)
#define WMULT_SHIFT                    32
#define NICE_0_LOAD                    (1UL << 20)
#define scale_load_down(w)             ((w) >> 10)
#define fls(x)                         (32 - __builtin_clz(x))
#define mul_u32_u32(a, b)              ((u64)(a) * (u64)(b))
#define mul_u64_u32_shr(a, mul, shift) ((u64)(((unsigned __int128)(a) * (mul)) >> (shift)))
#define u64_u32_store(to, value)       ((to) = (value))
#define sched_feat(name)               feature_##name
#define for_each_sched_entity(se)      for (; se; se = NULL)
#define lockdep_assert_rq_held(rq)     ((void)(rq))
#define WARN_ON_ONCE(x)                ((void)(x))
#define SCHED_WARN_ON(x)               (x)
#define SD_SHARE_CPUCAPACITY           1
#define WF_FORK                        1
#define SCHED_NORMAL                   TASK_NORMAL

bool with_base_slice;
enum {
	feature_START_DEBIT = 0,
	feature_GENTLE_FAIR_SLEEPERS = 1,
	feature_ALT_PERIOD = 0,
	feature_CACHE_HOT_BUDDY = 1,
	feature_NEXT_BUDDY = 0,
	feature_LAST_BUDDY = 1,
	feature_WAKEUP_PREEMPTION = 1
};
#define feature_BASE_SLICE with_base_slice

struct load_weight {
	unsigned long weight;
	u32 inv_weight;
};
struct rb_node;
struct sched_entity {
	struct load_weight load;
	unsigned int on_rq;
	u64 exec_start, sum_exec_runtime, vruntime, prev_sum_exec_runtime;
};
struct rb_root_cached {
	struct sched_entity *sorted[TASKS];
	int n;
};
struct cfs_rq {
	struct load_weight load;
	unsigned int nr_running, h_nr_running;
	u64 min_vruntime;
	struct rb_root_cached tasks_timeline;
	struct sched_entity *curr, *next, *last, *skip;
};
struct sched_class {
	int unused;
};
struct task_struct {
	struct sched_entity se;
	const struct sched_class *sched_class;
	enum task_policy policy;
	unsigned int wakee_flips;
};
struct rq {
	struct cfs_rq cfs;
	struct task_struct *curr, *idle;
	unsigned int nr_running;
};
struct sched_domain {
	int flags;
};
struct lb_env {
	struct rq *src_rq, *dst_rq;
	struct sched_domain *sd;
	int dst_cpu;
};

static struct rq queue, target;
static struct task_struct tasks[TASKS], sleeper, *current;
static const struct sched_class fair_sched_class;
static unsigned int sysctl_sched_latency, sysctl_sched_min_granularity, sysctl_sched_idle_min_granularity;
static unsigned int sysctl_sched_wakeup_granularity, sched_nr_latency, sd_llc_size;
static int sysctl_sched_migration_cost;
static u64 clock_ns;
static bool resched;

#define cfs_rq_of(se)                  ((void)(se), &queue.cfs)
#define task_cfs_rq(p)                 ((void)(p), &queue.cfs)
#define rq_of(cfs)                     ((void)(cfs), &queue)
#define rq_clock_task(rq)              ((void)(rq), clock_ns)
#define resched_curr(rq)               ((void)(rq), resched = true)
#define test_tsk_need_resched(p)       ((void)(p), false)
#define throttled_hierarchy(cfs)       ((void)(cfs), false)
#define find_matching_se(se, pse)      ((void)(se), (void)(pse))
#define update_curr(cfs)               ((void)(cfs))
#define entity_is_task(se)             ((void)(se), true)
#define sched_idle_cfs_rq(cfs)         ((void)(cfs), false)
#define sched_vslice(cfs, se)          ((void)(cfs), (void)(se), 0)
#define sched_core_cookie_match(rq, p) ((void)(p), true)
#define cpu_rq(cpu)                    ((void)(cpu), &target)
#define __this_cpu_read(name)          name
#define __clear_buddies_last(se)       (queue.cfs.last = NULL)
#define __clear_buddies_next(se)       (queue.cfs.next = NULL)
#define __clear_buddies_skip(se)       (queue.cfs.skip = NULL)
#define rb_first_cached(root)          ((struct rb_node *)((root)->n ? (root)->sorted[0] : NULL))
#define __node_2_se(node)              ((struct sched_entity *)(node))

static bool task_has_idle_policy(const struct task_struct *p)
{
	return p->policy == TASK_IDLE;
}

static int se_is_idle(struct sched_entity *se)
{
	return task_has_idle_policy((struct task_struct *)se);
}

static struct sched_entity *__pick_first_entity(struct cfs_rq *cfs)
{
	return cfs->tasks_timeline.n ? cfs->tasks_timeline.sorted[0] : NULL;
}

static struct sched_entity *__pick_next_entity(struct sched_entity *se)
{
	const struct rb_root_cached *tree = &queue.cfs.tasks_timeline;

	for (int i = 0; i + 1 < tree->n; i++)
		if (tree->sorted[i] == se)
			return tree->sorted[i + 1];
	return NULL;
}

#include "fair.h"

static void load(const struct state *state)
{
	struct cfs_rq *cfs = &queue.cfs;
	struct rb_root_cached *tree = &cfs->tasks_timeline;

	memset(&queue, 0, sizeof(queue));
	memset(tasks, 0, sizeof(tasks));
	resched = false;
	cfs->min_vruntime = state->min_vruntime;
	cfs->nr_running = cfs->h_nr_running = (unsigned int)state->n;
	for (int i = 0; i < state->n; i++) {
		struct sched_entity *se = &tasks[i].se;
		int at = tree->n;

		se->load.weight = state->weight[i] << 10;
		se->vruntime = state->vruntime[i];
		se->on_rq = 1;
		tasks[i].policy = state->policy[i];
		tasks[i].sched_class = &fair_sched_class;
		cfs->load.weight += se->load.weight;
		if (i == state->curr)
			continue;
		for (; at && (s64)(tree->sorted[at - 1]->vruntime - se->vruntime) > 0; at--)
			tree->sorted[at] = tree->sorted[at - 1];
		tree->sorted[at] = se;
		tree->n++;
	}
	if (state->curr != NONE) {
		queue.curr = &tasks[state->curr];
		cfs->curr = &queue.curr->se;
		cfs->curr->sum_exec_runtime = state->ran_ns;
	}
	cfs->next = state->next == NONE ? NULL : &tasks[state->next].se;
	cfs->last = state->last == NONE ? NULL : &tasks[state->last].se;
	cfs->skip = state->skip == NONE ? NULL : &tasks[state->skip].se;
	sysctl_sched_latency = (unsigned int)state->latency_ns;
	sysctl_sched_min_granularity = sysctl_sched_idle_min_granularity =
		(unsigned int)state->min_granularity_ns;
	sysctl_sched_wakeup_granularity = (unsigned int)state->wakeup_granularity_ns;
	sysctl_sched_migration_cost = (int)state->migration_cost_ns;
	sched_nr_latency = (unsigned int)state->nr_latency;
}

static int number_of(const struct sched_entity *se)
{
	return se ? (int)((const struct task_struct *)se - tasks) : NONE;
}

void decide_as_kernel(const struct state *state, struct decisions *made)
{
	struct sched_domain domain = { 0 };
	struct lb_env env = { .src_rq = &queue, .dst_rq = &target, .sd = &domain };

	load(state);
	made->pick = number_of(pick_next_entity(&queue.cfs, queue.cfs.curr));
	made->compare = wakeup_preempt_entity(&tasks[0].se, &tasks[1].se);
	update_min_vruntime(&queue.cfs);
	made->min_vruntime = queue.cfs.min_vruntime;
	load(state);
	sleeper.policy = TASK_NORMAL;
	sleeper.se.vruntime = state->sleeper_vruntime;
	place_entity(&queue.cfs, &sleeper.se, 0);
	made->place = sleeper.se.vruntime;
	target.nr_running = state->target_runs;
	clock_ns = 1000000000;
	tasks[0].se.exec_start = clock_ns - state->since_ns;
	made->is_hot = task_hot(&tasks[0], &env);
	current = &tasks[0];
	current->wakee_flips = state->flips[0];
	tasks[1].wakee_flips = state->flips[1];
	sd_llc_size = state->size;
	made->wakes_many = wake_wide(&tasks[1]);
	if (state->curr == NONE)
		return;
	made->slice = sched_slice(&queue.cfs, queue.cfs.curr);
	check_preempt_tick(&queue.cfs, queue.cfs.curr);
	made->tick = resched;
	load(state);
	check_preempt_wakeup(&queue, &tasks[state->woken], 0);
	made->preempts = resched;
	made->next = number_of(queue.cfs.next);
	made->last = number_of(queue.cfs.last);
}
