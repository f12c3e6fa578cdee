// SPDX-License-Identifier: MIT
/*
 * These programs count how often and how long the processes of a proxy wait for each other. Taking a free lock causes
 * no event, so the programs do not slow down this operation. The programs slow every system call of the host slightly,
 * because they run at the entry and exit of all system calls.
 *
 * ASSUME a count of only the second and later waiters for a spinlock of the kernel is enough. The first waiter spins on
 * the pending bit and never reaches the tracepoint (kernel/locking/qspinlock.c). On a host with two CPUs, the count is
 * therefore 0, except in a guest whose kernel uses the hypervisor's spinlocks.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "factors.h"

char LICENSE[] SEC("license") = "GPL";

/* Ids of the process groups of the proxy and its front end. counts[1] counts the tasks of the groups. */
const volatile __s32 cfg_groups[FACTORS_GROUPS] = { 0 };

#define SPINS         1 /* LCB_F_SPIN of include/trace/events/lock.h */
#define FUTEX_COMMAND 0x7f
#define FUTEX_WAIT    0
#define FUTEX_BITSET  9
#define FUTEX_LOCK_PI 6
#define SOL_SOCKET    1
#define SCM_RIGHTS    1

#if defined(__TARGET_ARCH_x86)
#define CALL_SENDMSG 46
#define CALL_YIELD   24
#define CALL_FUTEX   202
#else /* system call numbers from include/uapi/asm-generic/unistd.h */
#define CALL_SENDMSG 211
#define CALL_YIELD   124
#define CALL_FUTEX   98
#endif

/* The counters per CPU. counts[1] counts the tasks of cfg_groups, counts[0] counts all other tasks. */
struct factor_counts counts[2][FACTORS_CPUS];
__u64 since_ns; /* the programs ignore waits that began before this time */

static __u64 spinning[FACTORS_CPUS];
static __u64 locking[FACTORS_TASKS];

/* The system call in which a task waits now. */
static struct call {
	__u64 since_ns;
	__u64 factor;
} calls[FACTORS_TASKS];

static __always_inline __u32 cpu(void)
{
	return bpf_get_smp_processor_id() & (FACTORS_CPUS - 1);
}

static __always_inline __u32 task_slot(void)
{
	return (__u32)bpf_get_current_pid_tgid() & (FACTORS_TASKS - 1);
}

static __always_inline bool asked_for(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pid *group = BPF_CORE_READ(task, signal, pids[PIDTYPE_PGID]);
	__s32 number = BPF_CORE_READ(group, numbers[0].nr);

	return number == cfg_groups[0] || number == cfg_groups[1];
}

static __always_inline void add(enum factor what, __u64 since)
{
	struct wait *wait = &counts[asked_for()][cpu()].wait[what];

	if (since < since_ns)
		return;
	/*
	 * Add atomically, because an interrupt may run this BPF program during an addition, and a count would be lost.
	 */
	__sync_fetch_and_add(&wait->count, 1);
	__sync_fetch_and_add(&wait->ns, bpf_ktime_get_ns() - since);
}

/* Count the file descriptors that a sendmsg() passes to another process in its first control message. */
static __always_inline void count_descriptors(const struct user_msghdr *message)
{
	struct cmsghdr *data = NULL, first;
	__kernel_size_t length = 0;

	bpf_probe_read_user(&length, sizeof(length), &message->msg_controllen);
	if (length < sizeof(first))
		return;
	bpf_probe_read_user(&data, sizeof(data), &message->msg_control);
	if (!data || bpf_probe_read_user(&first, sizeof(first), data))
		return;
	if (first.cmsg_level == SOL_SOCKET && first.cmsg_type == SCM_RIGHTS)
		__sync_fetch_and_add(&counts[asked_for()][cpu()].descriptors,
				     (first.cmsg_len - sizeof(first)) / sizeof(int));
}

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention, void *lock, unsigned int flags)
{
	if (flags & SPINS)
		spinning[cpu()] = bpf_ktime_get_ns();
	else
		locking[task_slot()] = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int result)
{
	__u32 here = cpu(), slot = task_slot();

	if (spinning[here]) {
		add(FACTOR_kernel_spin, spinning[here]);
		spinning[here] = 0;
	} else if (locking[slot]) {
		add(FACTOR_kernel_sleep, locking[slot]);
		locking[slot] = 0;
	}
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_call, struct pt_regs *regs, long id)
{
	struct call *call = &calls[task_slot()];
	int command;

	if (id == CALL_SENDMSG) {
		count_descriptors((const struct user_msghdr *)PT_REGS_PARM2_CORE_SYSCALL(regs));
		return 0;
	}
	if (id == CALL_FUTEX) {
		command = (int)PT_REGS_PARM2_CORE_SYSCALL(regs) & FUTEX_COMMAND;
		if (command != FUTEX_WAIT && command != FUTEX_BITSET && command != FUTEX_LOCK_PI)
			return 0;
		call->factor = FACTOR_futex;
	} else if (id == CALL_YIELD) {
		call->factor = FACTOR_sched_yield;
	} else {
		return 0;
	}
	call->since_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_call_end, struct pt_regs *regs, long result)
{
	struct call *call = &calls[task_slot()];

	if (!call->since_ns)
		return 0;
	if (call->factor == FACTOR_futex)
		add(FACTOR_futex, call->since_ns);
	else
		add(FACTOR_sched_yield, call->since_ns);
	call->since_ns = 0;
	return 0;
}
