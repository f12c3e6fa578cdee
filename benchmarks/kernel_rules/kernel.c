// SPDX-License-Identifier: MIT
/*
 * Let the kernel's functions decide in a state of a run queue or of a machine.
 * `fair.h` has unchanged functions of the kernel, which ../kernel_rules.py
 * extracts. This file defines the types and functions that the kernel's
 * functions use. The run queues have no task groups. An array replaces the
 * kernel's tree.
 */
#include "rules.h"
#include <limits.h>
#include <stddef.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
#define likely(x)         (x)
#define unlikely(x)       (x)
#define min(a, b)         ((a) < (b) ? (a) : (b))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define swap(a, b)                  \
	do {                        \
		unsigned int c = a; \
		a = b;              \
		b = c;              \
	} while (0)
#define CONFIG_SMP
#define HZ                             (1000000000 / JIFFY_NS)
#define BITS_PER_LONG                  64
#define WMULT_CONST                    (~0U)
#define WMULT_SHIFT                    32
#define NICE_0_LOAD                    (1UL << 20)
#define scale_load_down(w)             ((w) >> 10)
#define fls(x)                         (32 - __builtin_clz(x))
#define div_u64(a, b)                  ((u64)(a) / (b))
#define mul_u32_u32(a, b)              ((u64)(a) * (u64)(b))
#define mul_u64_u32_shr(a, mul, shift) ((u64)(((unsigned __int128)(a) * (mul)) >> (shift)))
#define u64_u32_store(to, value)       ((to) = (value))
#define READ_ONCE(x)                   (x)
#define WRITE_ONCE(to, value)          ((to) = (value))
#define time_after(a, b)               ((long)((b) - (a)) < 0)
#define sched_feat(name)               feature_##name
#define for_each_sched_entity(se)      for (; se; se = NULL)
#define WARN_ON_ONCE(x)                ((void)(x))
#define SCHED_WARN_ON(x)               (x)
#define SCHED_NORMAL                   TASK_NORMAL
#define TASK_RUNNING                   0
#define PF_EXITING                     4
#define nr_cpumask_bits                CPUS

enum {
	SD_BALANCE_NEWIDLE = 0x01,
	SD_WAKE_AFFINE = 0x10,
	SD_SHARE_CPUCAPACITY = 0x40,
	WF_FORK = 0x04,
	WF_TTWU = 0x08,
	WF_SYNC = 0x10,
	DEQUEUE_SLEEP = 0x01,
	DEQUEUE_SAVE = 0x02,
	DEQUEUE_MOVE = 0x04,
	ENQUEUE_WAKEUP = 0x01,
	ENQUEUE_MIGRATED = 0x40,
	UPDATE_TG = 0x2,
	DO_ATTACH = 0x4,
	DO_DETACH = 0x8,
	LBF_ALL_PINNED = 0x01,
	LBF_NEED_BREAK = 0x02,
	LBF_DST_PINNED = 0x04,
	LBF_SOME_PINNED = 0x08,
	LBF_ACTIVE_LB = 0x10,
	SCHED_NR_MIGRATE_BREAK = 32
};
enum cpu_idle_type {
	CPU_IDLE,
	CPU_NOT_IDLE,
	CPU_NEWLY_IDLE
};
enum migration_type {
	migrate_load,
	migrate_util,
	migrate_task,
	migrate_misfit
};

bool with_base_slice;
static bool scan_is_limited;
enum {
	feature_START_DEBIT = 0,
	feature_GENTLE_FAIR_SLEEPERS = 1,
	feature_ALT_PERIOD = 0,
	feature_CACHE_HOT_BUDDY = 1,
	feature_NEXT_BUDDY = 0,
	feature_LAST_BUDDY = 1,
	feature_WAKEUP_PREEMPTION = 1,
	feature_WA_IDLE = 1,
	feature_WA_WEIGHT = 1,
	feature_WA_BIAS = 1,
	feature_LB_MIN = 0,
	feature_NI_RANDOM = 0
};
#define feature_BASE_SLICE with_base_slice
#define feature_SIS_PROP   (scan_is_limited && !with_base_slice)
#define feature_SIS_UTIL   (scan_is_limited && with_base_slice)

struct list_head {
	struct list_head *next, *prev;
};
struct cpumask {
	unsigned long bits;
};
struct load_weight {
	unsigned long weight;
	u32 inv_weight;
};
struct rb_node;
struct sched_entity {
	struct load_weight load;
	unsigned int on_rq;
	u64 exec_start, sum_exec_runtime, vruntime, prev_sum_exec_runtime;
	struct list_head group_node;
};
struct rb_root_cached {
	struct sched_entity *sorted[MACHINE_TASKS];
	int n;
};
struct cfs_rq {
	struct load_weight load;
	unsigned int nr_running, h_nr_running, idle_nr_running, idle_h_nr_running;
	u64 min_vruntime;
	struct rb_root_cached tasks_timeline;
	struct sched_entity *curr, *next, *last, *skip;
};
struct rq;
struct task_struct;
struct sched_class {
	void (*task_woken)(struct rq *, struct task_struct *);
};
struct task_struct {
	struct sched_entity se;
	const struct sched_class *sched_class;
	enum task_policy policy;
	unsigned int wakee_flips, flags, __state;
	unsigned long wakee_flip_decay_ts;
	struct task_struct *last_wakee;
	struct cpumask *cpus_ptr, allowed;
	int cpu, on_cpu, recent_used_cpu, sched_task_hot;
};
struct sched_domain_shared {
	int nr_idle_scan;
};
struct sched_domain {
	struct sched_domain *parent;
	struct cpumask span;
	int flags, group; /* group: number of CPUs in each of the domain's groups */
	unsigned int span_weight, imbalance_pct, nr_balance_failed, cache_nice_tries, newidle_ratio;
	u64 max_newidle_lb_cost, avg_scan_cost;
};
struct root_domain {
	int overload;
};
struct rq {
	struct cfs_rq cfs;
	struct task_struct *curr, *idle;
	unsigned int nr_running, ttwu_pending;
	int cpu;
	struct list_head cfs_tasks;
	struct sched_domain *sd;
	struct root_domain *rd;
	u64 idle_stamp, avg_idle, max_idle_balance_cost, wake_avg_idle;
	unsigned long wake_stamp, next_balance;
};
struct rq_flags {
	int unused;
};
struct lb_env {
	struct rq *src_rq, *dst_rq;
	struct sched_domain *sd;
	int src_cpu, dst_cpu, new_dst_cpu;
	struct cpumask *dst_grpmask, *cpus;
	enum cpu_idle_type idle;
	enum migration_type migration_type;
	long imbalance;
	unsigned int flags, loop, loop_break, loop_max;
	struct list_head tasks;
};

static struct rq rqs[CPUS];
static struct task_struct tasks[MACHINE_TASKS], idle_tasks[CPUS], sleeper, *current;
static const struct sched_class fair_sched_class;
static struct sched_domain domains[CPUS][2], *sd_llc[CPUS], *sd_asym_cpucapacity[CPUS];
static struct sched_domain_shared shared, *sd_llc_shared[CPUS];
static struct root_domain root;
static struct cpumask scan_mask;
static unsigned int sysctl_sched_latency, sysctl_sched_min_granularity, sysctl_sched_idle_min_granularity;
static unsigned int sysctl_sched_wakeup_granularity, sched_nr_latency, sd_llc_size;
static int sysctl_sched_migration_cost, this_cpu_number;
static unsigned long jiffies;
static u64 clock_ns, search_ns;
static bool resched;

#define task_of(se)                    ((struct task_struct *)(se))
#define cpu_rq(cpu)                    (&rqs[cpu])
#define this_rq()                      cpu_rq(this_cpu_number)
#define smp_processor_id()             this_cpu_number
#define raw_smp_processor_id()         this_cpu_number
#define cpu_of(rq)                     ((rq)->cpu)
#define task_cpu(p)                    ((p)->cpu)
#define task_cfs_rq(p)                 (&cpu_rq((p)->cpu)->cfs)
#define cfs_rq_of(se)                  task_cfs_rq(task_of(se))
#define rq_of(cfs)                     ((struct rq *)(cfs))
#define rq_clock_task(rq)              ((void)(rq), clock_ns)
#define rq_clock(rq)                   ((void)(rq), clock_ns)
#define cpu_clock(cpu)                 clock_ns
#define sched_clock_cpu(cpu)           ((void)(cpu), search_ns)
#define resched_curr(rq)               ((void)(rq), resched = true)
#define test_tsk_need_resched(p)       ((void)(p), false)
#define find_matching_se(se, pse)      ((void)(se), (void)(pse))
#define entity_is_task(se)             ((void)(se), true)
#define sched_idle_cfs_rq(cfs)         ((void)(cfs), false)
#define sched_vslice(cfs, se)          ((void)(cfs), (void)(se), 0)
#define sched_core_cookie_match(rq, p) ((void)(p), true)
#define sched_cpu_cookie_match(rq, p)  ((void)(p), true)
#define task_on_rq_queued(p)           ((p)->se.on_rq)
#define task_on_rq_migrating(p)        ((void)(p), false)
#define task_on_cpu(rq, p)             ((p)->on_cpu)
#define task_running(rq, p)            ((p)->on_cpu)
#define rb_first_cached(root)          ((struct rb_node *)((root)->n ? (root)->sorted[0] : NULL))
#define __node_2_se(node)              ((struct sched_entity *)(node))
#define cpumask_test_cpu(cpu, mask)    (((mask)->bits >> (cpu)&1))
#define cpumask_and(to, a, b)          ((to)->bits = (a)->bits & (b)->bits)
#define for_each_cpu_wrap(cpu, mask, start) \
	for (int n_ = 0; n_ < CPUS; n_++)   \
		if (cpu = ((start) + n_) % CPUS, cpumask_test_cpu(cpu, mask))
#define for_each_cpu_and(cpu, a, b)      \
	for (cpu = 0; cpu < CPUS; cpu++) \
		if (cpumask_test_cpu(cpu, a) && cpumask_test_cpu(cpu, b))
#define for_each_domain(number, domain)        for (domain = rqs[number].sd; domain; domain = domain->parent)
#define sched_domain_span(sd)                  (&(sd)->span)
#define rcu_dereference(pointer)               (pointer)
#define rcu_dereference_check_sched_domain(sd) (sd)
#define per_cpu(name, cpu)                     ((name)[cpu])
#define this_cpu_ptr(all)                      (&(*(all))[this_cpu_number])
#define __this_cpu_read(name)                  name
#define this_cpu_cpumask_var_ptr(name)         (&scan_mask)
#define list_empty(list)                       ((list)->next == (list))
#define list_last_entry(list, type, member)    ((type *)((char *)(list)->prev - offsetof(type, member)))
#define capacity_of(cpu)                       1024L
#define task_h_load(p)                         scale_load_down((p)->se.load.weight)
/* loads are weights; like the kernel's average load, the load of a CPU includes
 * the sleeping task 0 */
#define cpu_load(rq) \
	(scale_load_down((rq)->cfs.load.weight) + ((rq)->cpu == tasks[0].cpu ? task_h_load(&tasks[0]) : 0))

/* functions that would do nothing in the states of this benchmark, or that
 * return a constant */
#define lockdep_assert_rq_held(rq)
#define lockdep_assert_held(lock)
#define lockdep_assert_irqs_disabled()
#define rcu_read_lock()
#define rcu_read_unlock()
#define raw_spin_rq_lock(rq)
#define raw_spin_rq_unlock(rq)
#define rq_unpin_lock(rq, flags)
#define rq_repin_lock(rq, flags)
#define schedstat_enabled() false
#define schedstat_inc(counter)
#define schedstat_add(counter, n)
#define __schedstat_set(counter, value)
#define __schedstats_from_se(se) NULL
#define check_schedstat_required()
#define check_spread(cfs, se)
#define update_stats_enqueue_fair(cfs, se, flags)
#define update_stats_dequeue_fair(cfs, se, flags)
#define update_stats_wait_start_fair(cfs, se)
#define update_stats_wait_end_fair(cfs, se)
#define update_stats_curr_start(cfs, se) ((se)->exec_start = clock_ns)
#define trace_sched_stat_runtime(p, delta, vruntime)
#define trace_sched_wakeup(p)
#define cgroup_account_cputime(p, delta)
#define account_group_exec_runtime(p, delta)
#define account_cfs_rq_runtime(cfs, delta)
#define account_numa_enqueue(rq, p)
#define account_numa_dequeue(rq, p)
#define update_load_avg(cfs, se, flags) ((void)(flags))
#define se_update_runnable(se)
#define update_cfs_group(se)
#define throttled_hierarchy(cfs)           ((void)(cfs), false)
#define throttled_lb_pair(group, src, dst) false
#define check_enqueue_throttle(cfs)
#define check_cfs_rq_runtime(cfs)
#define return_cfs_rq_runtime(cfs)
#define list_add_leaf_cfs_rq(cfs)
#define update_idle_cfs_rq_clock_pelt(cfs)
#define check_preempt_curr(rq, p, flags)
#define update_misfit_status(p, rq)
#define update_blocked_averages(cpu)
#define update_next_balance(sd, next)
#define update_newidle_cost(...)
#define update_newidle_stats(sd, success)
#define sched_rng() 0
#define nohz_newidle_balance(rq)
#define cpu_active(cpu)                          true
#define vcpu_is_preempted(cpu)                   false
#define sched_energy_enabled()                   false
#define find_energy_efficient_cpu(p, cpu)        (-1)
#define find_idlest_cpu(sd, p, cpu, prev, flags) (cpu)
#define sched_smt_active()                       false
#define test_idle_cores(cpu)                     false
#define set_idle_cores(cpu, value)
#define select_idle_core(p, core, cpus, idle) (-1)
#define select_idle_smt(p, sd, cpu)           (-1)
#define sched_asym_cpucap_active()            false
#define asym_fits_cpu(...)                    true
#define sync_entity_load_avg(se)
#define task_util_est(p)                  0
#define uclamp_eff_value(p, which)        0
#define select_idle_capacity(p, sd, cpu)  (cpu)
#define task_fits_cpu(p, cpu)             true
#define shr_bound(value, shift)           ((value) >> (shift))
#define is_per_cpu_kthread(p)             false
#define kthread_is_per_cpu(p)             false
#define in_task()                         false
#define migrate_degrades_locality(p, env) (-1)

static bool cpus_share_cache(int a, int b)
{
	return a == b || (sd_llc[a] && cpumask_test_cpu(b, &sd_llc[a]->span));
}

static void list_add(struct list_head *entry, struct list_head *list)
{
	entry->next = list->next;
	entry->prev = list;
	list->next->prev = entry;
	list->next = entry;
}

static void list_del_init(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	entry->next = entry->prev = entry;
}

static void list_move(struct list_head *entry, struct list_head *list)
{
	list_del_init(entry);
	list_add(entry, list);
}

static bool task_has_idle_policy(const struct task_struct *p)
{
	return p->policy == TASK_IDLE;
}

static int se_is_idle(struct sched_entity *se)
{
	return task_has_idle_policy(task_of(se));
}

static struct sched_entity *__pick_first_entity(struct cfs_rq *cfs)
{
	return cfs->tasks_timeline.n ? cfs->tasks_timeline.sorted[0] : NULL;
}

static struct sched_entity *__pick_next_entity(struct sched_entity *se)
{
	const struct rb_root_cached *tree = &cfs_rq_of(se)->tasks_timeline;

	for (int i = 0; i + 1 < tree->n; i++)
		if (tree->sorted[i] == se)
			return tree->sorted[i + 1];
	return NULL;
}

static void __enqueue_entity(struct cfs_rq *cfs, struct sched_entity *se)
{
	struct rb_root_cached *tree = &cfs->tasks_timeline;
	int at = tree->n++;

	for (; at && (s64)(tree->sorted[at - 1]->vruntime - se->vruntime) > 0; at--)
		tree->sorted[at] = tree->sorted[at - 1];
	tree->sorted[at] = se;
}

static void __dequeue_entity(struct cfs_rq *cfs, struct sched_entity *se)
{
	struct rb_root_cached *tree = &cfs->tasks_timeline;
	int at = 0;

	while (tree->sorted[at] != se)
		at++;
	tree->n--;
	for (; at < tree->n; at++)
		tree->sorted[at] = tree->sorted[at + 1];
}

static void detach_task(struct task_struct *p, struct lb_env *env);
static int load_balance(int cpu, struct rq *to, struct sched_domain *sd, enum cpu_idle_type idle, int *go_on);

#include "fair.h"

/* Add a task to the queue of its CPU, or remove the task, as
 * enqueue_task_fair() and dequeue_task_fair() do. */
static void queue_task(struct task_struct *p, bool add, int flags)
{
	struct rq *rq = cpu_rq(p->cpu);
	int n = add ? 1 : -1;

	if (add)
		enqueue_entity(&rq->cfs, &p->se, flags);
	else
		dequeue_entity(&rq->cfs, &p->se, flags);
	rq->nr_running += n;
	rq->cfs.h_nr_running += n;
	rq->cfs.idle_h_nr_running += task_has_idle_policy(p) ? n : 0;
}

static void detach_task(struct task_struct *p, struct lb_env *env)
{
	queue_task(p, false, 0);
	p->cpu = env->dst_cpu;
}

/*
 * Find the CPU from which another CPU takes tasks, and how many. The kernel
 * compares average loads, and this function uses the simulator's rule: the
 * groups of a domain are its CPUs, or the CPUs that share a cache. The CPU with
 * the most tasks in the group with the most tasks gives half of the difference
 * between the groups.
 */
static struct rq *find_busiest(int cpu, const struct sched_domain *sd, const struct cpumask *left, long *wanted)
{
	struct rq *found = NULL;
	long here = 0, most = 0;

	for (int first = 0; first < CPUS; first += sd->group) {
		struct rq *busiest = NULL;
		long sum = 0;

		for (int i = first; i < first + sd->group && i < CPUS; i++) {
			if (!cpumask_test_cpu(i, &sd->span))
				continue;
			sum += rqs[i].nr_running;
			if (rqs[i].nr_running > 1 && cpumask_test_cpu(i, left) &&
			    (!busiest || rqs[i].nr_running > busiest->nr_running))
				busiest = &rqs[i];
		}
		if (cpu >= first && cpu < first + sd->group) {
			here = sum;
		} else if (busiest && sum > most) {
			most = sum;
			found = busiest;
		}
	}
	*wanted = (most - here) / 2;
	return *wanted > 0 ? found : NULL;
}

/*
 * Move tasks to a CPU. If the CPU affinity of all tasks of the busiest CPU
 * excludes the new CPU, try the next CPU, as the kernel's load_balance() does.
 */
static int load_balance(int cpu, struct rq *to, struct sched_domain *sd, enum cpu_idle_type idle, int *go_on)
{
	struct cpumask left = sd->span;

	search_ns += sd->max_newidle_lb_cost;
	for (;;) {
		struct lb_env env = { .dst_rq = to,
				      .dst_cpu = cpu,
				      .sd = sd,
				      .idle = idle,
				      .flags = LBF_ALL_PINNED,
				      .migration_type = migrate_task,
				      .loop_break = SCHED_NR_MIGRATE_BREAK,
				      .tasks = { &env.tasks, &env.tasks } };
		struct rq *from = find_busiest(cpu, sd, &left, &env.imbalance);
		int moved;

		if (!from)
			return 0;
		env.src_rq = from;
		env.src_cpu = from->cpu;
		env.loop_max = from->nr_running;
		moved = detach_tasks(&env);
		for (int i = 0; i < moved; i++) {
			struct task_struct *p = list_last_entry(&env.tasks, struct task_struct, se.group_node);

			list_del_init(&p->se.group_node);
			queue_task(p, true, ENQUEUE_MIGRATED);
		}
		if (moved || !(env.flags & LBF_ALL_PINNED))
			return moved;
		left.bits &= ~(1UL << from->cpu);
	}
}

static void init_queues(void)
{
	memset(rqs, 0, sizeof(rqs));
	memset(tasks, 0, sizeof(tasks));
	memset(idle_tasks, 0, sizeof(idle_tasks));
	for (int i = 0; i < CPUS; i++) {
		rqs[i].cpu = i;
		rqs[i].curr = rqs[i].idle = &idle_tasks[i];
		rqs[i].cfs_tasks = (struct list_head){ &rqs[i].cfs_tasks, &rqs[i].cfs_tasks };
		rqs[i].rd = &root;
	}
	clock_ns = NOW_NS;
	jiffies = NOW_NS / JIFFY_NS;
	resched = false;
}

static void load(const struct state *state)
{
	struct cfs_rq *cfs = &rqs[0].cfs;

	init_queues();
	cfs->min_vruntime = state->min_vruntime;
	for (int i = 0; i < state->n; i++) {
		struct sched_entity *se = &tasks[i].se;

		se->load.weight = state->weight[i] << 10;
		se->vruntime = state->vruntime[i];
		se->on_rq = 1;
		se->exec_start = clock_ns;
		tasks[i].policy = state->policy[i];
		tasks[i].sched_class = &fair_sched_class;
		account_entity_enqueue(cfs, se);
		if (i != state->curr)
			__enqueue_entity(cfs, se);
	}
	rqs[0].nr_running = cfs->h_nr_running = cfs->nr_running;
	if (state->curr != NONE) {
		rqs[0].curr = &tasks[state->curr];
		cfs->curr = &rqs[0].curr->se;
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

static struct times times_of(const struct task_struct *p)
{
	return (struct times){ p->se.vruntime, rqs[0].cfs.min_vruntime };
}

/* Linux 5.10 has no special sleep credit for SCHED_IDLE, so let place_entity()
 * regard all tasks as normal tasks. */
static enum task_policy policy_of_sleeper(enum task_policy policy)
{
	return with_base_slice ? policy : TASK_NORMAL;
}

/* Change a task's weight, as __sched_setscheduler() in core.c does. A change of
 * the policy alone keeps the priority. */
static void change(const struct state *state)
{
	struct task_struct *p = &tasks[state->changed];
	struct cfs_rq *cfs = &rqs[0].cfs;
	bool running = cfs->curr == &p->se;
	int flags = DEQUEUE_SAVE | (state->new_weight == state->weight[state->changed] ? 0 : DEQUEUE_MOVE);

	dequeue_entity(cfs, &p->se, flags);
	if (running)
		put_prev_entity(cfs, &p->se);
	p->se.load = (struct load_weight){ .weight = state->new_weight << 10 };
	enqueue_entity(cfs, &p->se, flags);
	if (running)
		set_next_entity(cfs, &p->se);
}

static void decide_departures(const struct state *state, struct decisions *made)
{
	struct cfs_rq *cfs = &rqs[0].cfs;
	u64 exec_start = clock_ns - state->uncharged_ns;
	struct task_struct *p;

	if (state->changed != NONE) {
		load(state);
		if (cfs->curr)
			cfs->curr->exec_start = exec_start;
		change(state);
		made->change = times_of(&tasks[state->changed]);
	}
	if (state->curr == NONE)
		return;
	load(state);
	cfs->curr->exec_start = exec_start;
	p = task_of(cfs->curr);
	dequeue_entity(cfs, &p->se, DEQUEUE_SLEEP);
	made->sleep = times_of(p);
	put_prev_entity(cfs, &p->se);
	cfs->min_vruntime += state->slept_ns;
	p->policy = policy_of_sleeper(p->policy);
	enqueue_entity(cfs, &p->se, ENQUEUE_WAKEUP);
	made->wake = times_of(p);
	load(state);
	cfs->curr->exec_start = exec_start;
	p = &tasks[state->woken];
	dequeue_entity(cfs, &p->se, 0);
	made->move = times_of(p);
}

void decide_as_kernel(const struct state *state, struct decisions *made)
{
	struct sched_domain domain = { 0 };
	struct lb_env env = { .src_rq = &rqs[0], .dst_rq = &rqs[1], .sd = &domain, .dst_cpu = 1 };
	struct cfs_rq *cfs = &rqs[0].cfs;

	load(state);
	made->pick = number_of(pick_next_entity(cfs, cfs->curr));
	made->compare = wakeup_preempt_entity(&tasks[0].se, &tasks[1].se);
	update_min_vruntime(cfs);
	made->min_vruntime = cfs->min_vruntime;
	load(state);
	sleeper.policy = policy_of_sleeper(state->sleeper_policy);
	sleeper.se.vruntime = state->sleeper_vruntime;
	place_entity(cfs, &sleeper.se, 0);
	made->place = sleeper.se.vruntime;
	rqs[1].nr_running = state->target_runs;
	tasks[0].se.exec_start = clock_ns - state->since_ns;
	made->is_hot = task_hot(&tasks[0], &env);
	current = &tasks[0];
	current->wakee_flips = state->flips[0];
	tasks[1].wakee_flips = state->flips[1];
	sd_llc_size = state->size;
	made->wakes_many = wake_wide(&tasks[1]);
	decide_departures(state, made);
	if (state->curr == NONE)
		return;
	load(state);
	made->slice = sched_slice(cfs, cfs->curr);
	check_preempt_tick(cfs, cfs->curr);
	made->tick = resched;
	load(state);
	check_preempt_wakeup(&rqs[0], &tasks[state->woken], 0);
	made->preempts = resched;
	made->next = number_of(cfs->next);
	made->last = number_of(cfs->last);
}

static struct cpumask mask_of(int first, int n)
{
	return (struct cpumask){ ((1UL << n) - 1) << first };
}

/* Build the domains as the kernel does: the CPUs that share a cache, and all
 * CPUs. A domain needs at least two CPUs. */
static void load_domains(const struct machine *m)
{
	shared.nr_idle_scan = m->nr_idle_scan;
	for (int i = 0; i < m->cpus; i++) {
		int first = i / m->shared * m->shared, size = min(m->shared, m->cpus - first);
		int sizes[2] = { size, m->cpus };
		u64 cost = 0;

		rqs[i].sd = NULL;
		for (int level = 1; level >= 0; level--) {
			struct sched_domain *sd = &domains[i][level];

			if (sizes[level] < 2 || (level == 1 && size == m->cpus))
				continue;
			*sd = (struct sched_domain){ .parent = rqs[i].sd,
						     .span = level ? mask_of(0, m->cpus)
								   : mask_of(first, size),
						     .flags = SD_BALANCE_NEWIDLE | SD_WAKE_AFFINE,
						     .span_weight = sizes[level],
						     .group = level ? m->shared : 1,
						     .imbalance_pct = 117,
						     .nr_balance_failed = m->balance_failed,
						     .cache_nice_tries = 1,
						     .max_newidle_lb_cost = m->balance_ns * sizes[level],
						     .avg_scan_cost = m->scan_cost_ns };
			cost += sd->max_newidle_lb_cost;
			rqs[i].sd = sd;
		}
		sd_llc[i] = size > 1 ? &domains[i][0] : NULL;
		sd_llc_shared[i] = size > 1 ? &shared : NULL;
		rqs[i].max_idle_balance_cost = max_t(u64, cost, m->migration_cost_ns);
		rqs[i].wake_avg_idle = m->wake_avg_idle_ns;
		rqs[i].wake_stamp = jiffies;
		if (i == m->waker)
			sd_llc_size = size;
	}
}

static void load_machine(const struct machine *m)
{
	init_queues();
	sysctl_sched_migration_cost = (int)m->migration_cost_ns;
	load_domains(m);
	root.overload = false;
	for (int i = 0; i < m->n; i++) {
		struct task_struct *p = &tasks[i];

		p->se.load.weight = m->weight[i] << 10;
		p->sched_class = &fair_sched_class;
		p->policy = m->policy[i];
		p->cpu = m->cpu[i];
		p->allowed = mask_of(m->first_cpu[i], m->n_cpus[i]);
		p->cpus_ptr = &p->allowed;
	}
	for (int i = 0; i < m->steps; i++) {
		struct task_struct *p = &tasks[m->step[i].task];
		struct rq *rq = cpu_rq(p->cpu);

		if (m->step[i].runs) {
			if (rq->cfs.curr)
				put_prev_entity(&rq->cfs, rq->cfs.curr);
			set_next_task_fair(rq, p, true);
			rq->curr->on_cpu = false;
			rq->curr = p;
			p->on_cpu = true;
		} else {
			queue_task(p, true, 0);
		}
		root.overload |= rq->nr_running > 1;
	}
	for (int i = 0; i < m->n; i++)
		tasks[i].se.exec_start = clock_ns - m->since_ns[i];
	this_cpu_number = m->waker;
	current = rqs[m->waker].curr;
	current->wakee_flips = m->flips[0];
	current->wakee_flip_decay_ts = jiffies - m->decayed_ns[0] / JIFFY_NS;
	current->last_wakee = m->same_wakee ? &tasks[0] : NULL;
	tasks[0].wakee_flips = m->flips[1];
	tasks[0].wakee_flip_decay_ts = jiffies - m->decayed_ns[1] / JIFFY_NS;
	tasks[0].recent_used_cpu = m->recent_used_cpu;
}

void choose_as_kernel(const struct machine *m, struct choices *made)
{
	struct rq *rq = &rqs[m->newly_idle];
	struct rq_flags flags;

	for (int without = 0; without < WITHOUT; without++) {
		load_machine(m);
		if (without >= 1)
			tasks[0].recent_used_cpu = m->cpu[0];
		scan_is_limited = without < 2;
		made->cpu[without] = select_task_rq_fair(&tasks[0], m->cpu[0], WF_TTWU | WF_SYNC);
	}
	load_machine(m);
	rq->avg_idle = m->average_idle_ns;
	made->taken = 0;
	/* Linux 5.10 has this further condition at the beginning of its
   * newidle_balance() */
	if (!with_base_slice && rq->avg_idle < sysctl_sched_migration_cost)
		made->is_idle = true;
	else if (sched_balance_newidle(rq, &flags))
		for (int i = 0; i < rq->cfs.tasks_timeline.n; i++)
			made->taken |= 1 << number_of(rq->cfs.tasks_timeline.sorted[i]);
	else
		made->is_idle = rq->idle_stamp != 0;
	load_machine(m);
	rq->avg_idle = m->average_idle_ns;
	rq->idle_stamp = clock_ns - m->idle_ns;
	ttwu_do_wakeup(rq, &tasks[0], WF_TTWU, &flags);
	made->average_idle_ns = rq->avg_idle;
}
