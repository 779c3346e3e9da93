/* A folder that behaves as a volume of Databricks, for the processes that preload this library.
 *
 * Below the folder in $VOLUME there are no links, no appends and no writes but at the end of a file. A rename is a copy
 * and a delete. With $VOLUME_WITHOUT_LOCKS, flock is refused there too. With $VOLUME_IS=full no file grows, and with
 * $VOLUME_IS=read-only nothing changes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(number) do { errno = number; return -1; } while (0)

static int is_below(const char *path) {
    const char *root = getenv("VOLUME");
    size_t length = root ? strlen(root) : 0;
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int is_fd_in_volume(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int is_in_volume(int dir, const char *path) {
    if (path[0] == '/') return is_below(path);
    if (dir != AT_FDCWD) return is_fd_in_volume(dir);
    char here[PATH_MAX];
    return getcwd(here, sizeof here) && is_below(here);
}

static int is_now(const char *state) {
    const char *now = getenv("VOLUME_IS");
    return now && !strcmp(now, state);
}

/* ------------------------------------------------------------------ links and locks */

int link(const char *from, const char *to) {
    if (is_in_volume(AT_FDCWD, to)) REFUSE(EPERM);
    return REAL(link)(from, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    if (is_in_volume(to_dir, to)) REFUSE(EPERM);
    return REAL(linkat)(from_dir, from, to_dir, to, flags);
}

int symlink(const char *target, const char *path) {
    if (is_in_volume(AT_FDCWD, path)) REFUSE(EPERM);
    return REAL(symlink)(target, path);
}

int symlinkat(const char *target, int dir, const char *path) {
    if (is_in_volume(dir, path)) REFUSE(EPERM);
    return REAL(symlinkat)(target, dir, path);
}

int mkdir(const char *path, mode_t mode) {
    if (is_now("read-only") && is_in_volume(AT_FDCWD, path)) REFUSE(EROFS);
    return REAL(mkdir)(path, mode);
}

int flock(int fd, int operation) {
    if (getenv("VOLUME_WITHOUT_LOCKS") && is_fd_in_volume(fd)) REFUSE(EOPNOTSUPP);
    return REAL(flock)(fd, operation);
}

/* ------------------------------------------------------------------ opening and writing */

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, last); mode = va_arg(rest, mode_t); va_end(rest); }

#define DEFINE_OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags, flags) \
        if ((flags & O_APPEND) && is_in_volume(AT_FDCWD, path)) REFUSE(EOPNOTSUPP); \
        if ((flags & (O_WRONLY | O_RDWR)) && is_now("read-only") && is_in_volume(AT_FDCWD, path)) REFUSE(EROFS); \
        return REAL(name)(path, flags, mode); \
    }
#define DEFINE_OPENAT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        MODE(flags, flags) \
        if ((flags & O_APPEND) && is_in_volume(dir, path)) REFUSE(EOPNOTSUPP); \
        if ((flags & (O_WRONLY | O_RDWR)) && is_now("read-only") && is_in_volume(dir, path)) REFUSE(EROFS); \
        return REAL(name)(dir, path, flags, mode); \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

static int is_elsewhere(int fd, off_t at) {
    struct stat found;
    return is_fd_in_volume(fd) && !fstat(fd, &found) && S_ISREG(found.st_mode) && at != found.st_size;
}

ssize_t write(int fd, const void *content, size_t length) {
    if (length && is_elsewhere(fd, lseek(fd, 0, SEEK_CUR))) REFUSE(EOPNOTSUPP);
    if (length && is_now("full") && is_fd_in_volume(fd)) REFUSE(ENOSPC);
    return REAL(write)(fd, content, length);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (is_elsewhere(fd, lseek(fd, 0, SEEK_CUR))) REFUSE(EOPNOTSUPP);
    if (is_now("full") && is_fd_in_volume(fd)) REFUSE(ENOSPC);
    return REAL(writev)(fd, parts, count);
}

ssize_t pwrite(int fd, const void *content, size_t length, off_t at) {
    if (is_elsewhere(fd, at)) REFUSE(EOPNOTSUPP);
    return REAL(pwrite)(fd, content, length, at);
}

ssize_t pwrite64(int fd, const void *content, size_t length, off64_t at) {
    if (is_elsewhere(fd, at)) REFUSE(EOPNOTSUPP);
    return REAL(pwrite64)(fd, content, length, at);
}

static int is_refused_size(int fd, off_t size) {
    return size && is_fd_in_volume(fd);
}

int ftruncate(int fd, off_t size) {
    if (is_refused_size(fd, size)) REFUSE(EOPNOTSUPP);
    return REAL(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    if (is_refused_size(fd, size)) REFUSE(EOPNOTSUPP);
    return REAL(ftruncate64)(fd, size);
}

/* ------------------------------------------------------------------ renames */

static int copy_and_delete(int from_dir, const char *from, int to_dir, const char *to) {
    char content[1 << 16];
    ssize_t length;
    int source = REAL(openat)(from_dir, from, O_RDONLY | O_CLOEXEC);
    if (source < 0) return -1;
    int target = REAL(openat)(to_dir, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (target < 0) { close(source); return -1; }
    while ((length = read(source, content, sizeof content)) > 0)
        if (REAL(write)(target, content, length) != length) { length = -1; break; }
    close(source);
    if (close(target) < 0 || length < 0) return -1;
    return unlinkat(from_dir, from, 0);
}

static int is_file(int dir, const char *path) {
    struct stat found;
    return !fstatat(dir, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found.st_mode);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    if ((is_in_volume(to_dir, to) || is_in_volume(from_dir, from)) && is_file(from_dir, from))
        return copy_and_delete(from_dir, from, to_dir, to);
    return REAL(renameat)(from_dir, from, to_dir, to);
}

int rename(const char *from, const char *to) {
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    if (flags && is_in_volume(to_dir, to)) REFUSE(EINVAL);
    return flags ? REAL(renameat2)(from_dir, from, to_dir, to, flags) : renameat(from_dir, from, to_dir, to);
}
