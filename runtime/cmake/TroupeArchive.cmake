# The shared libarchive asks for libxml2, and that for ICU's tables of 31 MB; the static one has what is used of it alone.
find_library(archive_static libarchive.a)
find_library(archive_bz2 NAMES bz2 libbz2.so.1.0)
find_library(archive_lzma NAMES lzma liblzma.so.5)
find_library(archive_zstd NAMES zstd libzstd.so.1)
find_library(archive_nettle NAMES nettle libnettle.so.8)
if(TARGET LibArchive::LibArchive AND archive_static AND archive_bz2 AND archive_lzma AND archive_zstd
   AND archive_nettle)
  set_target_properties(LibArchive::LibArchive PROPERTIES IMPORTED_LOCATION ${archive_static}
    INTERFACE_LINK_LIBRARIES "${archive_bz2};${archive_lzma};${archive_zstd};${archive_nettle};z")
endif()
