// SPDX-License-Identifier: MIT
/*
 * awake keeps its CPU awake: while the CPU has no other task, awake waits in a loop, so that the kernel does not halt the CPU.
 *
 * USAGE
 *   awake     runs until SIGINT or SIGTERM; pin it with taskset, and start it with the policy SCHED_IDLE (chrt --idle 0)
 *
 * HOW IT WORKS
 *   When a guest halts a CPU, the hypervisor runs other guests on the physical CPU. After the next interrupt, the
 *   hypervisor may run the halted guest late. A task of the policy SCHED_IDLE prevents the halt, and every other task
 *   preempts it at once. The loop uses the CPU's instruction for waiting loops, which leaves the execution units to the
 *   other thread of the core.
 */
#include "../common/arguments.h"
#include "../common/program.h"

int main(int argc, char **argv)
{
	(void)argv;
	if (argc != 1) {
		complain("usage: awake");
		return EXIT_USAGE;
	}
	catch_signals();
	while (!stop_asked) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("yield");
#endif
	}
	return EXIT_GOOD;
}
