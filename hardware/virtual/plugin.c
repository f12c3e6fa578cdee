// SPDX-License-Identifier: MIT
/* The plugin, which reads the settings, checks QEMU, and counts the instructions of each vCPU. */
#include <dlfcn.h>
#include <fcntl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "virtual.h"

/* Declarations of qemu-plugin.h, which Debian does not package. SEE include/qemu/qemu-plugin.h of QEMU 7.2 */
#define API_VERSION 1
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus, max_vcpus;
	} system;
};
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_idle_cb(plugin_id, void (*)(plugin_id, unsigned));
void qemu_plugin_register_vcpu_resume_cb(plugin_id, void (*)(plugin_id, unsigned));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
EXPORT int qemu_plugin_version = API_VERSION;

/* Number of places in which QEMU 7.2 reads the time stamp counter by an inlined instruction. */
#define COUNTER_READS 3
/* PAUSE takes about 140 cycles, and RDTSC about 25 (Intel's optimization manual, Skylake). A cycle takes 0.3 ns. */
#define PAUSE_NS 42
#define RDTSC_NS 8

static int refuse(const char *why, const char *found)
{
	fprintf(stderr, "libsipvirtual: %s%s%s\n", why, found ? ", found " : "", found ? found : "");
	return 1;
}

/* ---- counting ---- */

static void count(unsigned index, void *parts)
{
	struct cpu *cpu = &cpus[index];

	cpu->left -= (intptr_t)parts;
	if (__builtin_expect(cpu->left < 0, 0))
		finish_quantum(cpu);
}

/* Return the time that an instruction takes in addition to the time of an ordinary instruction. */
static int extra_ns(const uint8_t *bytes, size_t size)
{
	if (size == 2 && bytes[0] == 0xf3 && bytes[1] == 0x90)
		return PAUSE_NS;
	if (size == 2 && bytes[0] == 0x0f && bytes[1] == 0x31)
		return RDTSC_NS;
	if (size == 3 && bytes[0] == 0x0f && bytes[1] == 0x01 && bytes[2] == 0xf9) /* RDTSCP */
		return RDTSC_NS;
	return 0;
}

/* Let QEMU call count() before each run of a translation block, with the time of the block's instructions. */
static void on_translation(plugin_id id, struct qemu_plugin_tb *block)
{
	size_t instructions = qemu_plugin_tb_n_insns(block);
	bool in_kernel = (int64_t)qemu_plugin_tb_vaddr(block) < 0;
	double time = (double)instructions * (in_kernel ? settings.kernel_weight : 1);

	(void)id;
	for (size_t i = 0; i < instructions; i++) {
		struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, i);

		time += extra_ns(qemu_plugin_insn_data(one), qemu_plugin_insn_size(one)) * settings.mips /
			1000;
	}
	qemu_plugin_register_vcpu_tb_exec_cb(block, count, 0, (void *)(intptr_t)(time * PARTS + 0.5));
}

static void on_idle(plugin_id id, unsigned index)
{
	(void)id;
	cpus[index].halting = true;
}

static void on_resume(plugin_id id, unsigned index)
{
	(void)id;
	cpus[index].halting = false;
}

/* ---- settings ---- */

static bool read_number(const char *text, double least, double most, double *number)
{
	char *end;

	errno = 0;
	*number = strtod(text, &end);
	return end != text && !*end && !errno && *number >= least && *number <= most;
}

static bool share_statistics(const char *path)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	void *map = MAP_FAILED;

	/* allocate the disk blocks now, because on a full disk, a write to a hole in the file would kill QEMU */
	if (fd >= 0 && !posix_fallocate(fd, 0, sizeof(*statistics)))
		map = mmap(NULL, sizeof(*statistics), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED)
		return false;
	statistics = map;
	memcpy(statistics->magic, STATISTICS_MAGIC, sizeof(statistics->magic));
	return true;
}

static bool read_setting(const char *text)
{
	double number;

	if (!strncmp(text, "statistics=", 11))
		return share_statistics(text + 11);
	if (!strncmp(text, "mips=", 5))
		return read_number(text + 5, 1, 1e5, &settings.mips);
	if (!strncmp(text, "kernel_weight=", 14))
		return read_number(text + 14, 0.1, 1000, &settings.kernel_weight);
	if (!strncmp(text, "idle_rate=", 10))
		return read_number(text + 10, 0, 1e6, &settings.idle_rate);
	if (!strncmp(text, "quantum_ns=", 11) && read_number(text + 11, 100, 1e6, &number)) {
		settings.quantum_ns = (int64_t)number;
		return true;
	}
	if (!strncmp(text, "wake_ns=", 8) && read_number(text + 8, 0, 1e6, &number)) {
		settings.wake_ns = (int64_t)number;
		return true;
	}
	return false;
}

/* Return whether QEMU calls this library's functions. Without LD_PRELOAD, QEMU calls the functions of libc instead. */
static bool is_preloaded(void)
{
	Dl_info called, own;

	return dladdr(dlsym(RTLD_DEFAULT, "ppoll"), &called) && dladdr((void *)is_preloaded, &own) &&
	       called.dli_fbase == own.dli_fbase;
}

EXPORT int qemu_plugin_install(plugin_id id, const struct qemu_info *qemu, int argc, char **argv)
{
	char found[32];
	int reads;

	snprintf(found, sizeof(found), "version %d", qemu->version.cur);
	if (qemu->version.cur != API_VERSION)
		return refuse("needs QEMU 7.2, whose plugin interface has version 1", found);
	if (!qemu->system_emulation || strcmp(qemu->target_name, "x86_64"))
		return refuse("needs qemu-system-x86_64", qemu->target_name);
	snprintf(found, sizeof(found), "%d", qemu->system.max_vcpus);
	if (qemu->system.max_vcpus > MAX_CPUS)
		return refuse("needs a guest of at most 64 CPUs", found);
	if (!is_preloaded())
		return refuse("must be preloaded, too: set LD_PRELOAD to its path", NULL);
	for (int i = 0; i < argc; i++)
		if (!read_setting(argv[i]))
			return refuse("a setting is unknown, out of range, or its file cannot be written",
				      argv[i]);
	reads = patch_counter_reads();
	snprintf(found, sizeof(found), "%d", reads);
	if (reads != COUNTER_READS)
		return refuse("needs QEMU 7.2 as Debian 12 builds it, with 3 known reads of the counter",
			      found);
	start_clock();
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	qemu_plugin_register_vcpu_idle_cb(id, on_idle);
	qemu_plugin_register_vcpu_resume_cb(id, on_resume);
	return 0;
}
