/* SPDX-License-Identifier: MIT */
/* Small services of the system: a line on stderr, the clocks, and what files of /proc and /sys say. */
#ifndef SIPSCHED_SYSTEM_H
#define SIPSCHED_SYSTEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* One clear line on stderr. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Less than a second. */
void pause_ns(long ns);
uint64_t clock_ns(clockid_t clock);

/* The first line of a small file; false if it cannot be read. */
bool read_line(const char *path, char *line, size_t size);
#define INITIAL_PID_NS 0xEFFFFFFCU /* PROC_PID_INIT_INO, include/linux/proc_ns.h */

/* The inode of a namespace file; 0 if it cannot be read. */
uint32_t namespace_of(const char *path);
uint32_t own_network_namespace(void);
#endif
