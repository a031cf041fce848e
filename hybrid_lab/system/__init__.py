"""What concerns the whole process: forks, threads, memory, temporary files, logging, progress, who provides what."""
