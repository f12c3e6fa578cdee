/* SPDX-License-Identifier: GPL-2.0 */
/* Definitions that the BPF programs for UDP datagrams (sipprobe.bpf.c) and for TCP streams (stream.bpf.c) share. */
#ifndef SIPSCHED_COMMON_BPF_H
#define SIPSCHED_COMMON_BPF_H
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "probe.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86DD

extern const volatile __u16 cfg_port;
extern const volatile __u16 cfg_ports;
extern const volatile __u32 cfg_netns; /* inode number of the proxy's network namespace */

extern struct probe_counters counters[PROBE_CPUS];
extern struct probe_worker workers[PROBE_WORKERS];
/* The array's index is the low bits of a thread id. An entry is 1 + the thread's index in `workers`. */
extern __u16 slot_of_tid[PROBE_TID_SLOTS];

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
};

#define COUNT(what) COUNT_BY(what, 1)
#define COUNT_BY(what, by) \
	__sync_fetch_and_add(&counters[bpf_get_smp_processor_id() & (PROBE_CPUS - 1)].what, by)

/*
 * Return a pointer as a number, because the BPF verifier forbids arithmetic on a trusted pointer. The function adds the
 * pointer to a 0 on the stack, and the verifier regards the sum as a number.
 */
static __always_inline __u64 address_of(void *pointer)
{
	__u64 address = 0;

	__sync_fetch_and_add(&address, (__u64)pointer);
	return address;
}

/* Return whether a local port belongs to the proxy. Each instance of a run has its own port. */
static __always_inline bool port_is_ours(__u16 port)
{
	return (__u16)(port - cfg_port) < cfg_ports;
}

static __always_inline bool is_from_network(struct sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETHERTYPE_IPV4) && skb->dev->nd_net.net->ns.inum == cfg_netns;
}

static __always_inline struct probe_worker *worker_of(__u32 tid)
{
	__u32 slot = slot_of_tid[tid & (PROBE_TID_SLOTS - 1)];
	struct probe_worker *worker;

	if (!slot)
		return NULL;
	/* Bound the index by a mask, because the BPF verifier of Linux 5.10 does not accept a comparison as a bound. */
	worker = &workers[(slot - 1) & (PROBE_WORKERS - 1)];
	return worker->tid == tid ? worker : NULL;
}

/* ---- system calls ---- */

#if defined(__TARGET_ARCH_x86)
#define NR_READ          0
#define NR_WRITE         1
#define NR_READV         19
#define NR_WRITEV        20
#define NR_SENDTO        44
#define NR_RECVFROM      45
#define NR_SENDMSG       46
#define NR_RECVMSG       47
#define SYSCALL_OF(regs) ((regs)->orig_ax)
#define ARG_FD(regs)     ((regs)->di)
#define ARG_BUFFER(regs) ((regs)->si)
#elif defined(__TARGET_ARCH_arm64)
#define NR_READ          63
#define NR_WRITE         64
#define NR_READV         65
#define NR_WRITEV        66
#define NR_SENDTO        206
#define NR_RECVFROM      207
#define NR_SENDMSG       211
#define NR_RECVMSG       212
#define SYSCALL_OF(regs) ((regs)->syscallno)
#define ARG_FD(regs)     ((regs)->orig_x0)
#define ARG_BUFFER(regs) ((regs)->regs[1])
#else
#error "add the system call numbers and argument registers of this architecture"
#endif

/* Return whether a system call receives datagrams. */
static __always_inline bool is_receive(long id)
{
	return id == NR_RECVFROM || id == NR_RECVMSG;
}

static __always_inline bool is_send(long id)
{
	return id == NR_SENDTO || id == NR_SENDMSG;
}

/* Return the address and size of a system call's user-space buffer. For a scattered buffer, return its first piece. */
static __always_inline struct iovec user_piece(struct pt_regs *regs, long id)
{
	struct user_msghdr header = {};
	struct iovec piece = { .iov_base = (void *)ARG_BUFFER(regs), .iov_len = ~0UL };

	if (id == NR_SENDMSG || id == NR_RECVMSG) {
		bpf_probe_read_user(&header, sizeof(header), (void *)ARG_BUFFER(regs));
		bpf_probe_read_user(&piece, sizeof(piece), header.msg_iov);
	} else if (id == NR_READV || id == NR_WRITEV) {
		bpf_probe_read_user(&piece, sizeof(piece), (void *)ARG_BUFFER(regs));
	}
	return piece;
}

static __always_inline void *user_buffer(struct pt_regs *regs, long id)
{
	return user_piece(regs, id).iov_base;
}

/* Return the socket of this task's descriptor `fd`, or NULL if the socket cannot be read. The function takes 0.2 us. */
static __always_inline struct sock *socket_of(int fd)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct file **table = BPF_CORE_READ(task, files, fdt, fd);
	struct file *file = NULL;
	struct socket *socket;

	if (fd < 0 || bpf_probe_read_kernel(&file, sizeof(file), table + fd) || !file)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}
#endif
