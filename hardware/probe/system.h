/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_SYSTEM_H
#define SIPSCHED_SYSTEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../common/clock.h"
#include "../common/program.h"

#define INITIAL_PID_NS 0xEFFFFFFCU /* PROC_PID_INIT_INO of include/linux/proc_ns.h */

/* Sleep for `ns` nanoseconds, which must be less than one second. */
void pause_ns(long ns);
/* Read the first line of a file without its line end. Return false on failure. */
bool read_line(const char *path, char *line, size_t size);
/*
 * End this program if no input arrives for two minutes. Call the function at the start of the program and after each input.
 * The time limit is necessary, because on a silent network, the end of the input never arrives from the machine that
 * reads the program's output.
 */
void expect_input(void);
/* Return the inode number of a namespace's file, which identifies the namespace. Return 0 if it cannot be read. */
uint32_t namespace_of(const char *path);
uint32_t own_network_namespace(void);
/*
 * Return whether this process is in the initial PID namespace. If not, print one line. In another namespace, process groups
 * have other ids than in the kernel, so the BPF programs could not find the proxy.
 */
bool is_in_initial_pid_namespace(void);
#endif
