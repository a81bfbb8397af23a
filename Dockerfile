# CPU:  docker build -t nas_lightning .
# CUDA: docker build -t nas_lightning:cuda --build-arg INDEX=https://download.pytorch.org/whl/cu126 .
#       docker run --gpus all -v $PWD:/home/nas/runs nas_lightning:cuda nas-search trainer.accelerator=gpu
FROM python:3.12-slim
ARG INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir torch torchvision --index-url $INDEX
COPY . /src
RUN pip install --no-cache-dir "/src[tensorboard,export]" && rm -rf /src
RUN useradd --create-home nas
USER nas
WORKDIR /home/nas/runs
CMD ["nas-search", "--help"]
