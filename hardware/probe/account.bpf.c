// SPDX-License-Identifier: MIT
/*
 * These programs assign all time of the CPUs to the tasks and interrupts that use the time. The programs do not sample,
 * but run at each context switch, and at the beginning and end of each interrupt. Each run takes about 0.2 us.
 *
 * A burst is a time during which one task or softirq keeps a CPU. A competitor is a user-space task that belongs
 * neither to the proxy nor to sipsched.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "account.h"

char LICENSE[] SEC("license") = "GPL";

const volatile __s32 cfg_groups[ACCOUNT_GROUPS] = { 0 }; /* ids of the proxy's process groups */
const volatile __s32 cfg_own[ACCOUNT_OWN] = { 0 };       /* ids of sipsched's sshd processes */
const volatile bool cfg_bursts = false;                  /* true: write bursts to the ring buffer `kept` */

#define PF_KTHREAD     0x00200000
#define TASK_SLEEPS    0x00000001 /* TASK_INTERRUPTIBLE of the kernel */
#define TASK_STOPS     0x00008004 /* __TASK_STOPPED and TASK_FROZEN of the kernel */
#define TASK_TRACES    0x00000008 /* __TASK_TRACED of the kernel */
#define POLICY_FIFO    1
#define POLICY_RR      2
#define POLICY_IDLE    5
#define POLICY_DL      6
#define NICE_0_PRIO    120
#define MOST_ANCESTORS 8

/*
 * Before Linux 5.18, sched_switch has no argument for the state of the previous task. These kernels may also lack
 * atomic functions that return a value (5.12) and bpf_get_current_task_btf (5.11). The Makefile defines
 * BEFORE_LINUX_5_18 if the kernel's BTF types show the older tracepoint.
 */
#ifdef BEFORE_LINUX_5_18
#define READ(task, field) BPF_CORE_READ(task, field)
/* Linux 5.14 renamed the field `state` to `__state`. */
struct task_struct___since_5_14 {
	unsigned int __state;
} __attribute__((preserve_access_index));
struct task_struct___before_5_14 {
	long state;
} __attribute__((preserve_access_index));
#else
/* `volatile` stops the compiler from merging two loads into one load, which the BPF verifier would refuse. */
#define READ(task, field) (*(volatile __typeof__((task)->field) *)&(task)->field)
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ACCOUNT_TASKS);
	__type(key, __u64);
	__type(value, struct account_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ACCOUNT_RING_BYTES);
} kept SEC(".maps");

struct account_cpu cpus[ACCOUNT_CPUS];
struct account_wait worst_wait;
struct account_stop worst_stop;
struct account_gap gaps[ACCOUNT_GAPS];
__s64 proxy_running; /* number of the proxy's tasks that are on a CPU */
__u64 gap_since_ns;  /* time since which no task of the proxy has been on a CPU */
__u64 tasks_lost;    /* number of tasks for which the table had no room */
__u64 bursts_lost;   /* number of bursts for which the ring buffer had no room */
bool ending;         /* true: settle() ends the measurement; false: settle() begins it */

/*
 * The result of the search in keep_gap(). The variable is in memory, because the verifier would otherwise follow each
 * possible result separately, and loading the programs would take ten times as long. Two CPUs rarely search at the same
 * time. In such a case, one of the CPUs may replace a gap that is not the shortest.
 */
static volatile __u32 shortest_gap;

static const struct account_task no_task = { 0 };

/* Return the key of a thread. The key contains the thread's start time, because the kernel reuses thread ids. */
static __always_inline __u64 key_of(struct task_struct *task)
{
	__u64 pid = READ(task, pid);

	return pid ? pid << 32 | (__u32)(READ(task, start_time) >> 10) : 0;
}

static __always_inline struct task_struct *current_task(void)
{
#ifdef BEFORE_LINUX_5_18
	return (void *)bpf_get_current_task();
#else
	return bpf_get_current_task_btf();
#endif
}

static __always_inline struct account_cpu *cpu_state(__u32 cpu)
{
	struct account_cpu *state = &cpus[cpu & (ACCOUNT_CPUS - 1)];

	return state->started_ns && !state->ended_ns ? state : NULL;
}

static __always_inline bool is_competitor(__u32 part)
{
	return part == PART_realtime || part == PART_fair || part == PART_idle_class;
}

static __always_inline bool is_proxy(struct task_struct *task)
{
	struct pid *group = BPF_CORE_READ(task, signal, pids[PIDTYPE_PGID]);
	__s32 number = BPF_CORE_READ(group, numbers[0].nr);

	for (int i = 0; i < ACCOUNT_GROUPS; i++)
		if (cfg_groups[i] && number == cfg_groups[i])
			return true;
	return false;
}

/* Return whether sipsched started the task: its control group is below `sipsched-ROLE` (testbed/groups.py). */
static __always_inline bool is_started_by_us(struct task_struct *task)
{
	struct cgroup_subsys_state *parent = BPF_CORE_READ(task, cgroups, dfl_cgrp, self.parent);
	const char *name;
	char text[9] = { 0 };

	if (!parent)
		return false;
	name = BPF_CORE_READ((struct cgroup *)parent, kn, name);
	bpf_probe_read_kernel(text, sizeof(text), name);
	return text[0] == 's' && text[1] == 'i' && text[2] == 'p' && text[3] == 's' && text[4] == 'c' &&
	       text[5] == 'h' && text[6] == 'e' && text[7] == 'd' && text[8] == '-';
}

/* Return whether the task is one of the sshd processes in cfg_own or their descendant. */
static __always_inline bool is_descendant_of_ours(struct task_struct *task)
{
	for (int depth = 0; depth < MOST_ANCESTORS; depth++) {
		__s32 number = BPF_CORE_READ(task, tgid);

		if (number <= 1)
			return false;
		for (int i = 0; i < ACCOUNT_OWN; i++)
			if (cfg_own[i] == number)
				return true;
		task = BPF_CORE_READ(task, real_parent);
	}
	return false;
}

static __always_inline bool is_realtime(__u32 policy)
{
	return policy == POLICY_FIFO || policy == POLICY_RR || policy == POLICY_DL;
}

static __always_inline __u32 part_of(struct task_struct *task)
{
	__u32 policy = READ(task, policy);

	if (!READ(task, pid))
		return PART_idle;
	if (READ(task, flags) & PF_KTHREAD)
		return PART_kernel;
	if (is_proxy(task))
		return PART_proxy;
	if (is_started_by_us(task) || is_descendant_of_ours(task))
		return PART_own;
	if (is_realtime(policy))
		return PART_realtime;
	return policy == POLICY_IDLE ? PART_idle_class : PART_fair;
}

static __always_inline bool has_comm(const struct account_task *seen, struct task_struct *task)
{
	const __u64 *old = (const __u64 *)seen->comm;
	__u64 now[2];

	bpf_probe_read_kernel(now, sizeof(now), task->comm);
	return old[0] == now[0] && old[1] == now[1];
}

/*
 * Return a task's entry in the table. Determine the owner of the task's CPU time again if the task has started another
 * program or changed its scheduling policy.
 */
static __always_inline struct account_task *entry_of(struct task_struct *task)
{
	__u64 key = key_of(task);
	struct account_task *seen;

	if (!key)
		return NULL;
	seen = bpf_map_lookup_elem(&tasks, &key);
	if (!seen) {
		bpf_map_update_elem(&tasks, &key, &no_task, BPF_NOEXIST);
		seen = bpf_map_lookup_elem(&tasks, &key);
		if (!seen) {
			__sync_fetch_and_add(&tasks_lost, 1);
			return NULL;
		}
	} else if (seen->policy == READ(task, policy) && has_comm(seen, task)) {
		return seen;
	}
	seen->pid = READ(task, pid);
	seen->tgid = READ(task, tgid);
	seen->policy = READ(task, policy);
	seen->part = part_of(task);
	bpf_probe_read_kernel(seen->comm, sizeof(seen->comm), task->comm);
	return seen;
}

static __always_inline void charge(struct account_cpu *cpu, __u64 now)
{
	__u64 passed = now - cpu->charged_ns;

	cpu->charged_ns = now;
	if (cpu->irqs) {
		cpu->ns[PART_irq] += passed;
	} else if (cpu->softirqs) {
		cpu->ns[PART_softirq] += passed;
	} else if (cpu->part < ACCOUNT_PART_COUNT) {
		cpu->ns[cpu->part] += passed;
		cpu->net_ns += passed;
		if (is_competitor(cpu->part))
			cpu->competed += passed;
	}
}

/* Return the CPU time in ns that competitors have used on a CPU, including the present run of a competitor. */
static __always_inline __u64 competed(__u32 number, __u64 now)
{
	struct account_cpu *cpu = cpu_state(number);
	__u64 charged;

	if (!cpu)
		return 0;
	charged = cpu->charged_ns;
	if (is_competitor(cpu->part) && !cpu->irqs && !cpu->softirqs && now > charged)
		return cpu->competed + (now - charged);
	return cpu->competed;
}

/*
 * Return the key of the competitor with the longest burst on a CPU after `since`. Only the bursts in cpu->bursts are
 * known. Return 0 if no such burst ended after `since`.
 */
static __always_inline __u64 longest_competitor(struct account_cpu *cpu, __u64 since)
{
	__u64 longest = 0, key = 0;

	for (int i = 0; i < ACCOUNT_BURSTS; i++) {
		struct account_burst *burst = &cpu->bursts[i];
		__u64 from = burst->from_ns > since ? burst->from_ns : since;

		if (burst->to_ns > from && burst->to_ns - from > longest) {
			longest = burst->to_ns - from;
			key = burst->key;
		}
	}
	return key;
}

static __always_inline void begin_wait(struct account_task *entry, __u32 cpu, __u64 now)
{
	entry->waiting_ns = now;
	entry->wait_cpu = cpu;
	entry->competed = competed(cpu, now);
}

static __always_inline void end_wait(struct account_task *entry, __u64 now)
{
	__u64 waited = account_ns(entry->waiting_ns, now), by_others;
	struct account_cpu *cpu = cpu_state(entry->wait_cpu);

	if (!entry->waiting_ns || !cpu)
		return;
	by_others = account_ns(entry->competed, competed(entry->wait_cpu, now));
	if (by_others > waited)
		by_others = waited;
	if (by_others <= worst_wait.competed)
		return;
	worst_wait.ns = waited;
	worst_wait.competed = by_others;
	worst_wait.pid = entry->pid;
	worst_wait.cpu = entry->wait_cpu;
	worst_wait.by = longest_competitor(cpu, entry->waiting_ns);
}

/* Count a task of the proxy that gets (1) or gives up (-1) a CPU. Return the previous number of running proxy tasks. */
static __always_inline __s64 count_running(__s64 change)
{
#ifdef BEFORE_LINUX_5_18
	/*
	 * If two CPUs count at the same time, both may read the final number, and neither CPU sees that the previous
	 * number was 0. The gap, a time in which no task of the proxy ran, is not recorded in this case.
	 */
	__sync_fetch_and_add(&proxy_running, change);
	return proxy_running - change;
#else
	return __sync_fetch_and_add(&proxy_running, change);
#endif
}

/* Keep a gap, a time in which no task of the proxy ran, if the gap is one of the longest. */
static __always_inline void keep_gap(__u64 from, __u64 to)
{
	__u64 least = ~0ULL;
	struct account_gap *shortest;

	if (!from || to <= from || to - from < ACCOUNT_GAP_NS)
		return;
	for (__u32 i = 0; i < ACCOUNT_GAPS; i++) {
		__u64 length = gaps[i].to_ns - gaps[i].from_ns;

		if (length < least) {
			least = length;
			shortest_gap = i;
		}
	}
	shortest = &gaps[shortest_gap & (ACCOUNT_GAPS - 1)];
	if (to - from > least) {
		shortest->from_ns = from;
		shortest->to_ns = to;
	}
}

static __always_inline void end_stop(struct account_task *entry, __u64 now)
{
	if (entry->stopped_ns && account_ns(entry->stopped_ns, now) > worst_stop.ns) {
		worst_stop.ns = account_ns(entry->stopped_ns, now);
		worst_stop.pid = entry->pid;
	}
	entry->stopped_ns = 0;
}

static __always_inline void proxy_begins(struct account_task *entry, __u64 now)
{
	__u64 runnable = entry->waiting_ns ? entry->waiting_ns : now;

	end_stop(entry, now);
	end_wait(entry, now);
	entry->waiting_ns = 0;
	if (!count_running(1)) {
		keep_gap(gap_since_ns, runnable);
		gap_since_ns = 0;
	}
}

static __always_inline void proxy_ends(struct account_task *entry, __u32 cpu, __u64 now, __u32 state)
{
	entry->waiting_ns = 0;
	if (!state)
		begin_wait(entry, cpu, now);
	if (state & (TASK_STOPS | TASK_TRACES))
		entry->stopped_ns = now;
	if (state & TASK_TRACES)
		__sync_fetch_and_add(&worst_stop.traced, 1);
	if (count_running(-1) == 1)
		gap_since_ns = now;
}

/*
 * Write a burst into the ring buffer. BPF_RB_NO_WAKEUP is necessary, because waking sipaccount during a context switch
 * would disturb the scheduling of the proxy. sipaccount reads the ring buffer periodically instead.
 */
static __always_inline void keep_burst(struct task_struct *task, __s32 pid, __u32 number, __u32 part,
				       __u64 from, __u64 to)
{
	struct account_kept *burst;

	if (!cfg_bursts || to - from < ACCOUNT_BURST_NS)
		return;
	burst = bpf_ringbuf_reserve(&kept, sizeof(*burst), 0);
	if (!burst) {
		__sync_fetch_and_add(&bursts_lost, 1);
		return;
	}
	burst->from_ns = from;
	burst->to_ns = to;
	burst->pid = pid;
	burst->cpu = number;
	burst->part = part;
	if (task)
		bpf_probe_read_kernel(burst->comm, sizeof(burst->comm), task->comm);
	else
		burst->comm[0] = '\0';
	bpf_ringbuf_submit(burst, BPF_RB_NO_WAKEUP);
}

/* Write the burst of the task that ran until now, unless the CPU was idle or the task belongs to the proxy. */
static __always_inline void keep_task(const struct account_cpu *cpu, __u32 number, struct task_struct *task,
				      __u64 now)
{
	if (cpu->part != PART_idle && cpu->part != PART_proxy)
		keep_burst(task, READ(task, pid), number, cpu->part, cpu->since_ns, now);
}

/*
 * Add the burst that ends now to its task's entry. Keep a long burst of a competitor in cpu->bursts, too. `task` is NULL
 * if the kernel did not report the end of the burst.
 */
static __always_inline void end_burst(struct account_cpu *cpu, __u32 number, struct account_task *entry,
				      struct task_struct *task, __u64 now)
{
	__u32 policy = task ? READ(task, policy) : entry->policy;
	__u64 length = now - cpu->since_ns;
	struct account_burst *burst;

	entry->ns += cpu->net_ns;
	entry->bursts++;
	if (length > entry->longest_ns) {
		entry->longest_ns = length;
		/*
		 * A task may change its policy during the burst. Store the real-time policy if the task had one at the
		 * start or at the end of the burst.
		 */
		entry->longest_policy = is_realtime(policy) ? policy : entry->policy;
		if (task)
			entry->nice = READ(task, static_prio) - NICE_0_PRIO;
		entry->cpu = number;
	}
	if (!is_competitor(cpu->part) || length < ACCOUNT_BURST_NS)
		return;
	burst = &cpu->bursts[cpu->next_burst++ & (ACCOUNT_BURSTS - 1)];
	burst->key = cpu->key;
	burst->from_ns = cpu->since_ns;
	burst->to_ns = now;
}

static __always_inline void begin_burst(struct account_cpu *cpu, struct account_task *entry,
					struct task_struct *task, __u64 now)
{
	cpu->key = key_of(task);
	cpu->task = (__u64)task;
	cpu->part = entry ? entry->part : part_of(task);
	cpu->since_ns = now;
	cpu->net_ns = 0;
}

#ifdef BEFORE_LINUX_5_18
static __always_inline __u32 state_of(struct task_struct *task)
{
	struct task_struct___since_5_14 *newer = (void *)task;

	if (bpf_core_field_exists(newer->__state))
		return BPF_CORE_READ(newer, __state);
	return BPF_CORE_READ((struct task_struct___before_5_14 *)task, state);
}
#endif

/*
 * Record that the CPU passed at the time `at` from the task that `cpu` describes to `next`. `prev` is the task that
 * lost the CPU, or NULL if the kernel did not report the switch.
 */
static __always_inline void hand_over(struct account_cpu *cpu, __u32 number, struct task_struct *prev,
				      __u32 prev_state, struct task_struct *next, __u64 at)
{
	__u64 key = cpu->key;
	struct account_task *entry = key ? bpf_map_lookup_elem(&tasks, &key) : NULL;

	if (entry) {
		end_burst(cpu, number, entry, prev, at);
		if (cpu->part == PART_proxy)
			proxy_ends(entry, number, at, prev_state);
	}
	entry = entry_of(next);
	begin_burst(cpu, entry, next, at);
	if (entry && cpu->part == PART_proxy)
		proxy_begins(entry, at);
}

/*
 * Return the time at which the task that `cpu` describes lost the CPU, in a switch that the kernel did not report. The
 * scheduler's count of the task's CPU time shows this time. For a real-time task, the scheduler does not keep the start
 * of this count, so the result is `now`.
 */
static __always_inline __u64 lost_at(const struct account_cpu *cpu, __u64 now)
{
	struct task_struct *task = (void *)cpu->task;
	__u64 key = cpu->key, at = now, ran;
	struct account_task *entry = key ? bpf_map_lookup_elem(&tasks, &key) : NULL;

	if (entry && !is_realtime(entry->policy) && BPF_CORE_READ(task, pid) == entry->pid) {
		ran = BPF_CORE_READ(task, se.sum_exec_runtime) -
		      BPF_CORE_READ(task, se.prev_sum_exec_runtime);
		if (ran < now - cpu->since_ns)
			at = cpu->since_ns + ran;
	}
	return at < cpu->charged_ns ? cpu->charged_ns : at;
}

/*
 * Charge the time until now to the task or interrupt that used the time. `task` is the task that has the CPU now. On
 * some machines, the kernel runs no BPF programs while certain tasks run, so it does not report the switch away from
 * such a task. If `cpu` still describes this earlier task, record the switch now. The burst of the earlier task is not
 * written, because the end of the burst is only computed.
 */
static __always_inline void catch_up(struct account_cpu *cpu, __u32 number, struct task_struct *task,
				     __u64 now)
{
	__u64 at;

	if (cpu->key != key_of(task)) {
		at = lost_at(cpu, now);
		charge(cpu, at);
		hand_over(cpu, number, NULL, TASK_SLEEPS, task, at);
	}
	charge(cpu, now);
}

SEC("tp_btf/sched_switch")
#ifdef BEFORE_LINUX_5_18
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
#else
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
#endif
{
#ifdef BEFORE_LINUX_5_18
	__u32 prev_state = state_of(prev);
#endif
	__u32 number = bpf_get_smp_processor_id();
	struct account_cpu *cpu = cpu_state(number);
	__u64 now;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	catch_up(cpu, number, prev, now);
	keep_task(cpu, number, prev, now);
	hand_over(cpu, number, prev, prev_state, next, now);
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	struct account_task *entry;

	if (!is_proxy(task))
		return 0;
	entry = entry_of(task);
	if (entry && !entry->waiting_ns)
		begin_wait(entry, READ(task, wake_cpu), bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq, int irq, struct irqaction *action)
{
	__u32 number = bpf_get_smp_processor_id();
	struct account_cpu *cpu = cpu_state(number);
	__u64 now;

	if (cpu) {
		now = bpf_ktime_get_ns();
		catch_up(cpu, number, current_task(), now);
		cpu->irqs++;
	}
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_end, int irq, struct irqaction *action, int result)
{
	struct account_cpu *cpu = cpu_state(bpf_get_smp_processor_id());

	if (cpu) {
		charge(cpu, bpf_ktime_get_ns());
		if (cpu->irqs)
			cpu->irqs--;
	}
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq, unsigned int vector)
{
	__u32 number = bpf_get_smp_processor_id();
	struct account_cpu *cpu = cpu_state(number);
	__u64 now;

	if (cpu) {
		now = bpf_ktime_get_ns();
		catch_up(cpu, number, current_task(), now);
		if (!cpu->softirqs++)
			cpu->softirq_ns = now;
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_end, unsigned int vector)
{
	__u32 number = bpf_get_smp_processor_id();
	struct account_cpu *cpu = cpu_state(number);

	if (!cpu)
		return 0;
	charge(cpu, bpf_ktime_get_ns());
	if (!cpu->softirqs)
		return 0; /* this softirq began before the measurement, so its start is unknown */
	if (!--cpu->softirqs)
		keep_burst(NULL, vector, number, PART_softirq, cpu->softirq_ns, cpu->charged_ns);
	return 0;
}

/*
 * Begin or end the measurement of this CPU. sipaccount runs this program once per CPU at the beginning and at the end
 * of the measurement. Without this program, the measurement would miss a CPU that never switches tasks.
 */
SEC("raw_tp")
int settle(void *context)
{
	__u32 number = bpf_get_smp_processor_id();
	struct account_cpu *cpu = &cpus[number & (ACCOUNT_CPUS - 1)];
	struct task_struct *task = current_task();
	__u64 now = bpf_ktime_get_ns(), key;
	struct account_task *entry;

	if (!ending) {
		entry = entry_of(task);
		begin_burst(cpu, entry, task, now);
		if (cpu->part == PART_proxy)
			count_running(1);
		else if (!gap_since_ns)
			gap_since_ns = now;
		cpu->charged_ns = now;
		cpu->started_ns = now;
		return 0;
	}
	if (!cpu_state(number))
		return 0;
	catch_up(cpu, number, task, now);
	keep_task(cpu, number, task, now);
	key = cpu->key;
	entry = key ? bpf_map_lookup_elem(&tasks, &key) : NULL;
	if (entry)
		end_burst(cpu, number, entry, task, now);
	cpu->ended_ns = now;
	return 0;
}
