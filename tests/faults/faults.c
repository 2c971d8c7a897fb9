/* Fails, shortens or kills at the n-th file operation below a folder. Preload it (LD_PRELOAD) and
   call fault_arm in the process to be tested. Every operation is written to a trace, and what a
   rename or unlink removes is kept as a hard link, so that a power cut can be computed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, KILL, KILL_AFTER, HALF, SHORT, FAIL, FAIL_FROM };
static char root[4096], shadow[4096];
static long at = -1, count = 0;
static int kind = NONE, error_code = EIO, trace = -1;
static pid_t owner = 0;

void fault_arm(const char *folder, const char *kept, int trace_to, long n, int what, int code) {
    strncpy(root, folder, sizeof root - 1);
    strncpy(shadow, kept, sizeof shadow - 1);
    trace = trace_to; at = n; kind = what; error_code = code; count = 0; owner = getpid();
}
long fault_count(void) { return count; }

static int below(const char *path) {
    size_t n = strlen(root);
    return owner == getpid() && n && path && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}
static const char *absolute(int folder, const char *path, char *out) {
    if (path == NULL) return NULL;
    if (path[0] == '/') return path;
    char base[4096], link[64];
    if (folder == AT_FDCWD) { if (!getcwd(base, sizeof base)) return NULL; }
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return NULL;
        base[n] = 0;
    }
    snprintf(out, 8192, "%s/%s", base, path);
    return out;
}
static const char *path_of(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, 4095);
    if (n < 0) return NULL;
    out[n] = 0;
    return out;
}
static void say(const char *op, const char *path, const char *other, long value) {
    char line[9000];
    int n = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\t%ld\n", count, op, path, other, value);
    if (trace >= 0) syscall(SYS_write, trace, line, n);
}
static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); for (;;) pause(); }

/* Counts an operation; 1 if it is to fail. */
static int strikes(const char *op, const char *path) {
    (void)op; (void)path;
    count++;
    int now = count == at;
    if (now && kind == KILL) die();
    if ((now && kind == FAIL) || (kind == FAIL_FROM && at >= 0 && count >= at)) { errno = error_code; return 1; }
    return 0;
}
static void after(void) { if (count == at && kind == KILL_AFTER) die(); }
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)

static int changes(int flags) { return (flags & (O_CREAT | O_TRUNC)) != 0; }
#define OPEN(NAME) \
int NAME(const char *given, int flags, ...) { \
    REAL(int, #NAME, const char *, int, ...); \
    mode_t mode = 0; \
    if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    char room[8192]; const char *path = absolute(AT_FDCWD, given, room); \
    if (!below(path) || !changes(flags)) return real(given, flags, mode); \
    if (strikes("open", path)) return -1; \
    int fresh = syscall(SYS_access, path, F_OK) != 0; \
    int got = real(given, flags, mode); \
    if (got >= 0) say(fresh ? "create" : (flags & O_TRUNC) ? "truncate" : "open", path, "", 0); \
    after(); return got; \
}
OPEN(open)
OPEN(open64)
#define OPENAT(NAME) \
int NAME(int folder, const char *given, int flags, ...) { \
    REAL(int, #NAME, int, const char *, int, ...); \
    mode_t mode = 0; \
    if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    char room[8192]; const char *path = absolute(folder, given, room); \
    if (!below(path) || !changes(flags)) return real(folder, given, flags, mode); \
    if (strikes("open", path)) return -1; \
    int fresh = syscall(SYS_access, path, F_OK) != 0; \
    int got = real(folder, given, flags, mode); \
    if (got >= 0) say(fresh ? "create" : (flags & O_TRUNC) ? "truncate" : "open", path, "", 0); \
    after(); return got; \
}
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    char room[4096]; const char *path;
    if (owner != getpid() || !below(path = path_of(fd, room))) return real(fd, data, size);
    if (strikes("write", path)) return -1;
    if (count == at && (kind == HALF || kind == SHORT) && size > 1) {
        ssize_t half = real(fd, data, size / 2);
        say("write", path, "", half);
        if (kind == HALF) die();
        return half;
    }
    ssize_t got = real(fd, data, size);
    say("write", path, "", got);
    after(); return got;
}
#define FD(NAME, SHOWN) \
int NAME(int fd) { \
    REAL(int, #NAME, int); \
    char room[4096]; const char *path; \
    if (owner != getpid() || !below(path = path_of(fd, room))) return real(fd); \
    if (!strcmp(SHOWN, "close")) { \
        int flags = fcntl(fd, F_GETFL); \
        if ((flags & O_ACCMODE) == O_RDONLY) return real(fd); \
        int fails = strikes(SHOWN, path), code = errno; \
        int got = real(fd); after(); \
        if (fails) { errno = code; return -1; } \
        return got; \
    } \
    if (strikes(SHOWN, path)) return -1; \
    struct stat about; fstat(fd, &about); \
    int got = real(fd); \
    say(S_ISDIR(about.st_mode) ? "syncdir" : SHOWN, path, "", (long)about.st_size); \
    after(); return got; \
}
FD(fsync, "fsync")
FD(fdatasync, "fsync")
FD(close, "close")

static void keep(const char *path) {  /* a hard link to what is about to go */
    char to[8300];
    snprintf(to, sizeof to, "%s/%ld", shadow, count);
    if (shadow[0]) syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, to, 0);
}
static int renamed(int (*real)(const char *, const char *), const char *from, const char *to) {
    char one[8192], two[8192];
    const char *a = absolute(AT_FDCWD, from, one), *b = absolute(AT_FDCWD, to, two);
    if (!below(b)) return real(from, to);
    if (strikes("rename", b)) return -1;
    keep(b);
    int got = real(from, to);
    if (got == 0) say("rename", a, b, count);
    after(); return got;
}
int rename(const char *from, const char *to) { REAL(int, "rename", const char *, const char *); return renamed(real, from, to); }
int unlink(const char *given) {
    REAL(int, "unlink", const char *);
    char room[8192]; const char *path = absolute(AT_FDCWD, given, room);
    if (!below(path) || syscall(SYS_access, path, F_OK) != 0) return real(given);
    if (strikes("unlink", path)) return -1;
    keep(path);
    int got = real(given);
    if (got == 0) say("unlink", path, "", count);
    after(); return got;
}
int mkdir(const char *given, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    char room[8192]; const char *path = absolute(AT_FDCWD, given, room);
    if (!below(path) || syscall(SYS_access, path, F_OK) == 0) return real(given, mode);
    if (strikes("mkdir", path)) return -1;
    int got = real(given, mode);
    if (got == 0) say("mkdir", path, "", 0);
    after(); return got;
}
int rmdir(const char *given) {
    REAL(int, "rmdir", const char *);
    char room[8192]; const char *path = absolute(AT_FDCWD, given, room);
    if (!below(path)) return real(given);
    if (strikes("rmdir", path)) return -1;
    int got = real(given); after(); return got;
}
#define TRUNCATE(NAME, TYPE) \
int NAME(int fd, TYPE size) { \
    REAL(int, #NAME, int, TYPE); \
    char room[4096]; const char *path; \
    if (owner != getpid() || !below(path = path_of(fd, room))) return real(fd, size); \
    if (strikes("ftruncate", path)) return -1; \
    int got = real(fd, size); after(); return got; \
}
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)
